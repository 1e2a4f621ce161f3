"""Schedules in a run: what clients and rules get in each round, on resume too, and what is reported."""

import numpy as np
import pytest

from fedbn_flower.config.named_algorithms import settings_of
from fedbn_flower.records.events import Observer
from fedbn_flower.results.plotting.report_plots import learning_rates
from fedbn_flower.results.report.run_page import run_page
from fedbn_flower.results.run_reader import Run
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.server.federation import Federation
from strategies import STRATEGIES, PseudoGradientStrategy, setting
from strategies.aggregation.fold import Extras
from tests.quick import some_quick

from ..records.helpers import rows_of

OF_A_PAIR = (
    "scaffold", "scaffold-momentum", "fedproto", "fedsat", "feddc", "fedadmm", "fedcm", "mimelite", "mime",
    "fedtan",
)  # fmt: skip
PARTNERS = {name: {"objective": name} for name in OF_A_PAIR} | {
    "fedamp": {"objective": "fedprox"},
    "fedpac": {"objective": "fedpac", "client": "fedpac"},
}
WITH_RATE = [name for name, rule in STRATEGIES.items() if "server-lr" in settings_of(rule)]


class Models(Observer):
    """Keeps every round's model and rates."""

    def __init__(self):
        self.models, self.rates = [], []

    def on_round(self, result):
        self.models.append({name: array.numpy() for name, array in result.arrays.items()})
        self.rates.append(dict(result.facts.get("rates", {})))


class Configs(InlineGrid):
    """Keeps the rates in all messages to clients."""

    def __init__(self, config):
        super().__init__(config.num_clients, config.to_user_config())
        self.heard = []

    def work(self, messages, timeout):
        for message in messages:
            config = message.content.config_records.get("config", {})
            if "client-lr" in config:
                phase, entries = message.metadata.message_type, ("server-round", "client-lr")
                self.heard.append((phase, *(config[entry] for entry in entries)))
        return super().work(messages, timeout)


def ran(config, grid=InlineGrid):
    models = Models()
    carrier = grid(config) if grid is Configs else grid(config.num_clients, config.to_user_config())
    Federation(config).run(carrier, [models])
    return models, carrier


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def test_every_message_has_the_rate_of_its_round(configured):
    """Fine-tuning, before an evaluation, is at the rate of the round too."""
    config = configured(rounds=4, client_lr=0.4, client_lr_schedule="linear", fine_tune=1)
    _, grid = ran(config, Configs)
    expected = [0.4 * factor for factor in (1, 0.75, 0.5, 0.25)]
    for phase in ("train", "evaluate"):
        found = [tuple(heard) for kind, *heard in grid.heard if kind == phase]
        assert found == [(t, expected[t - 1]) for t in (1, 2, 3, 4) for _ in range(2)]


@pytest.mark.slow
@pytest.mark.parametrize("name", some_quick(WITH_RATE, range(0, 30, 3)))
def test_every_rule_with_a_rate_steps_by_that_of_the_round(configured, name):
    """With half the rate in round 1 it comes to what it comes to with half the rate; without, to another."""
    keys = {"strategy": name, "client": "shared", "model": "mlp-bn", "batch_size": 512} | PARTNERS.get(
        name, {}
    )
    scheduled, _ = ran(configured(**keys, server_lr=0.5, server_lr_schedule="warmup:1+constant"))
    half, _ = ran(configured(**keys, server_lr=0.25, rounds=1))
    full, _ = ran(configured(**keys, server_lr=0.5, rounds=1))
    assert_equal(scheduled.models[0], half.models[0])
    assert not np.array_equal(scheduled.models[0]["1.weight"], full.models[0]["1.weight"])
    assert scheduled.rates == [{"server-lr": 0.25}, {"server-lr": 0.5}]


def test_the_servers_step_by_hand(configured):
    """FedAvg moves by eta D: D of round 1, which has the whole rate, is that without a schedule."""
    keys = {"strategy": "fedavg", "client": "shared", "rounds": 2}
    config = configured(**keys, server_lr=0.5, server_lr_schedule="exponential:0.1")
    start = Federation(config).initial
    scheduled, (plain, _) = ran(config)[0], ran(configured(**keys, server_lr=1.0))
    for name in ("1.weight", "4.bias"):
        delta = plain.models[0][name] - start[name]
        np.testing.assert_allclose(scheduled.models[0][name], start[name] + 0.5 * delta, atol=1e-6)
    assert scheduled.rates == [{"server-lr": 0.5}, {"server-lr": 0.5 * 0.1}]


class InAnswers(PseudoGradientStrategy):
    """x += D, with every answer's difference scaled by the rate when it is read, in a worker or here."""

    eta: float = setting(1.0, gt=0, alias="server-lr")
    reads_extras_anywhere = True

    def read_extras(self, answer, round):
        return Extras(factor=self.eta)

    def server_step(self, delta, state, round):
        return delta


class InAnswersHere(InAnswers):
    """The same, read by the server only."""

    reads_extras_anywhere = False

    def read_extras(self, answer, round):
        return super().read_extras(answer, round)


@pytest.mark.slow
def test_where_answers_are_summed_the_rule_has_the_rate_of_the_round_too(run):
    keys = {"client": "shared", "rounds": 3, "server_lr_schedule": "exponential:0.5"}
    results = [run(**keys, strategy=rule) for rule in (InAnswers, InAnswersHere)]
    models = [(result.folder / "model.safetensors").read_bytes() for result in results]
    assert models[0] == models[1]


@pytest.mark.slow
def test_with_more_rounds_the_later_ones_are_those_of_a_run_of_so_many(finished, tmp_path):
    """What is done stays: linear over 2 rounds 1 and 1/2, then rounds 3 and 4 of 4."""
    keys = {"client_lr": 0.4, "client_lr_schedule": "linear"}
    finished(tmp_path, **keys, rounds=2)
    finished(tmp_path, **keys, rounds=4, resume=str(tmp_path))
    assert [float(row["client-lr"]) for row in rows_of(tmp_path)] == [0.4, 0.2, 0.2, 0.1]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"client_lr_schedule": "warmup:1+cosine:0.1", "server_lr_schedule": "linear", "client": "fixbn"}
            | {"evaluate_every": 3},
            "client-lr-schedule 'warmup:1+cosine:0.1', server-lr-schedule 'linear', client 'fixbn' and "
            "evaluate-every 3",
        ),
        ({"client": "fixbn", "fix_from": 2, "evaluate_every": 2, "client_lr_schedule": "step:1:0.5"}, ""),
        ({"client": "fixbn", "norm": "layer"}, ""),
    ],
    ids=["all", "nothing", "no statistics"],
)
def test_what_goes_by_the_number_of_rounds_is_said_where_it_changes(finished, tmp_path, caplog, keys, said):
    finished(tmp_path, **keys, rounds=2)
    finished(tmp_path, **keys, rounds=3, resume=str(tmp_path))
    lines = [line for line in caplog.messages if line.startswith("resume: ")]
    assert lines == [
        f"resume: {said} went by rounds 2 up to round 2, and from now on by rounds 3: "
        "from the start the run would have been another"
    ] * bool(said)


def test_the_report_draws_the_rates_of_the_rounds_that_are_done(finished, tmp_path):
    keys = {"client_lr_schedule": "linear", "server_lr_schedule": "linear:0.5"}
    finished(tmp_path / "run", client_lr=0.4, rounds=2, **keys)
    run = Run.read(tmp_path / "run")
    client, server = learning_rates(run).axes
    np.testing.assert_allclose(client.lines[0].get_xydata(), [[1, 0.4], [2, 0.2]])
    np.testing.assert_allclose(server.lines[0].get_xydata(), [[1, 0.01], [2, 0.0075]])
    page = run_page(run)
    assert "Learning rate by round" in page
    assert "<td>client-lr-schedule</td><td>linear</td>" in page
