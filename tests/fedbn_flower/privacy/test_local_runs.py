"""Whole runs with local privacy: what leaves a client, what is accounted and where, refused and repeated."""

import csv
from collections import Counter

import numpy as np
import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.core.ground.columns import PRIVACY
from fedbn_flower.privacy import accounts, keys, ledger
from fedbn_flower.results.run_folder import RunFolder
from fedbn_flower.runtime.inline import InlineGrid
from fedbn_flower.runtime.recorded_run import recorded_run
from fedbn_flower.runtime.simulation import make_grid, simulate
from fedbn_flower.server.federation import Federation
from strategies.messages.npy import decoded

from .test_runs import Stops, charges, model, resume, rows, simulated

DP = {"dp": "local", "dp_noise": 2.0, "dp_delta": 1e-3, "dp_seed": 5, "model": "linear", "client": "shared"}
SMALL = {"num_clients": 4, "partition": "iid", "batch_size": 240, "local_epochs": 1, "rounds": 2}


def small(configured, **values):
    return configured(**{**SMALL, **DP, **values})


def test_a_run_with_a_budget(configured, tmp_path):
    config = small(configured, dp_noise=0, dp_epsilon=8, rounds=3)
    assert config.weighting == "uniform"
    found = simulated(config, tmp_path / "run")["privacy"]
    assert found["noise"] == accounts.local_noise_for(8, 3, 1e-3)
    assert 7.9 < found["epsilon"] <= 8 == found["planned-epsilon"]
    names = ("notion", "adjacency", "sampling", "claim", "participations", "published")
    assert [found[name] for name in names] == ["client, local", "replace-one", "none", "simulated", 3, 3]
    assert len(found["outside"]) == 6
    written = [{name: float(row[name]) for name in PRIVACY} for row in rows(tmp_path / "run")]
    by_round = [accounts.local_epsilon(found["noise"], t, 1e-3) for t in (1, 2, 3)]
    assert [row["epsilon"] for row in written] == by_round
    assert {(row["noise-std"], row["clip-norm"]) for row in written} == {(found["noise"], 1.0)}


def test_epsilon_is_that_of_the_client_that_was_asked_most_often(configured, tmp_path):
    config = small(configured, num_clients=8, fraction_train=0.25, rounds=6)
    simulated(config, tmp_path)
    asked, expected = Counter(), []
    trained = [row for row in csv.DictReader((tmp_path / "clients.csv").open()) if row["phase"] == "train"]
    for number in range(1, 7):
        asked.update(row["partition"] for row in trained if int(row["round"]) == number)
        expected.append(accounts.local_epsilon(2.0, max(asked.values()), 1e-3))
    assert [float(row["epsilon"]) for row in rows(tmp_path)] == expected
    assert max(asked.values()) < 6


class Listening(InlineGrid):
    """Keeps what travels to and from the clients in each round."""

    def work(self, messages, timeout):
        heard = vars(self).setdefault("heard", [])
        for message, reply in zip(messages, super().work(messages, timeout), strict=True):
            if message.metadata.message_type == "train":
                heard.append(tuple(flat(one) for one in (message, reply)))
            yield reply


def flat(message):
    arrays = message.content["arrays"]
    return np.concatenate(
        [decoded(a, np.empty(a.shape, a.dtype)).astype(float).ravel() for a in arrays.values()]
    )


def sent(config, folder):
    """Run a round; return what was received and what left each client, and the model after it."""
    federation = Federation(config)
    federation.strategy._takes_sums_ = False
    grid = Listening(config.num_clients, config.to_user_config())
    folder.mkdir()
    recorded_run(federation, grid, RunFolder(folder, federation, grid.client_memory), [], None)
    return np.array(grid.heard).swapaxes(0, 1)


@pytest.mark.parametrize("clip", [0.01, 5.0])
def test_what_leaves_a_client_is_its_clipped_update_and_noise(configured, tmp_path, clip):
    """The update is that of the same run without privacy, shorter than 5 and longer than 0.01."""
    noise = 0.01 / clip
    private = small(configured, dp_noise=noise, dp_clip=str(clip), rounds=1)
    plain = configured(**SMALL | {"rounds": 1, "model": "linear", "client": "shared"})
    before, noisy = sent(private, tmp_path / "private")
    _, after = sent(plain, tmp_path / "plain")
    lengths = np.linalg.norm(after - before, axis=1)
    assert ((lengths > 0.01) & (lengths < 5)).all()
    added = noisy - before - (after - before) * np.minimum(1, clip / lengths)[:, np.newaxis]
    assert added.std(axis=1) == pytest.approx(np.full(4, 0.01), rel=0.1)
    assert abs(np.corrcoef(added) - np.eye(4)).max() < 0.2


def test_the_bits_do_not_depend_on_where_answers_are_summed(configured, tmp_path):
    config = small(configured, num_clients=20, fraction_train=0.5, strategy="fedadam")

    def run(name, summed):
        federation = Federation(config)
        grid = make_grid(federation, None)
        if not summed:
            grid = InlineGrid(config.num_clients, config.to_user_config(), grid.cohort)
            federation.strategy._takes_sums_ = False
        assert grid.sums == summed
        (tmp_path / name).mkdir()
        recorded_run(federation, grid, RunFolder(tmp_path / name, federation, grid.client_memory), [], None)
        return model(tmp_path / name), charges(tmp_path / name)

    assert run("summed", True) == run("apart", False)


def test_with_a_secret_key_noise_is_new_each_time_and_kept_nowhere(configured, tmp_path):
    config = small(configured, dp_seed=-1)
    summaries = [simulated(config, tmp_path / name) for name in "ab"]
    assert model(tmp_path / "a") != model(tmp_path / "b")
    assert summaries[0]["privacy"]["claim"] == "guarantee"
    assert not list(tmp_path.rglob(keys.NAME))


def test_a_resumed_run_has_the_bits_and_the_ledger_of_one_that_never_stopped(configured, tmp_path):
    config = small(configured, rounds=4, checkpoint_every=2, fraction_train=0.5)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    simulated(config, whole)
    with pytest.raises(KeyboardInterrupt):
        simulate(Federation(config), stopped, None, [Stops(3)])
    simulated(resume(config, stopped), stopped)
    assert model(stopped) == model(whole)
    assert (stopped / ledger.NAME).read_text() == (whole / ledger.NAME).read_text()


def test_with_a_secret_key_a_repeated_round_is_charged_again_and_a_spent_budget_ends_the_run(
    configured, tmp_path, caplog
):
    config = small(configured, dp_seed=-1, dp_noise=0, dp_epsilon=8, rounds=4, checkpoint_every=2)
    with pytest.raises(KeyboardInterrupt):
        simulate(Federation(config), tmp_path / "run", None, [Stops(3)])
    with caplog.at_level("WARNING", "flwr"):
        summary = simulated(resume(config, tmp_path / "run"), tmp_path / "run")
    found = [(c["round"], c["attempt"], c["clients"]) for c in charges(tmp_path / "run")]
    assert found == [(t, attempt, [0, 1, 2, 3]) for t, attempt in ((1, 1), (2, 1), (3, 1), (3, 2))]
    assert "privacy: budget spent at round 3 of 4" in caplog.text
    assert (summary["rounds"], summary["stopped"]) == (3, "budget")
    assert 7.9 < summary["privacy"]["epsilon"] <= 8


def killed(*_):
    raise KeyboardInterrupt


def test_a_resumed_run_whose_budget_is_spent_is_refused(configured, tmp_path, monkeypatch):
    """Round 3 was charged twice, and none of it is in the checkpoint of round 2."""
    config = small(configured, dp_seed=-1, dp_noise=0, dp_epsilon=8, rounds=4, checkpoint_every=2)
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        simulate(Federation(config), run, None, [Stops(3)])
    monkeypatch.setattr("fedbn_flower.server.federation.Exchange._carried", killed)
    with pytest.raises(KeyboardInterrupt):
        simulated(resume(config, run), run)
    assert [charge["round"] for charge in charges(run)] == [1, 2, 3, 3]
    wanted = r"^rounds: 4 is not allowed; expected 2: the privacy budget is spent at round 3$"
    with pytest.raises(UserError, match=wanted):
        simulated(resume(config, run), run)


def test_a_round_is_charged_before_anybody_is_asked(configured, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        InlineGrid,
        "work",
        lambda self, messages, timeout: asked.append(charges(tmp_path / "run")) or iter([]),
    )
    with pytest.raises(Exception, match=r".*"):
        simulated(small(configured), tmp_path / "run")
    assert [charge["clients"] for charge in asked[0]] == [[0, 1, 2, 3]]


EXPECTED = "with dp 'local'"
REFUSED = {
    "dp-clip: 'adaptive' is not allowed; expected a number > 0": {"dp_clip": "adaptive"},
    "dp-sampling: 'fixed' is not allowed; expected 'poisson', since no sampling hides a client from who "
    "reads its messages,": {"dp_sampling": "fixed"},
    "dp-simulate-cohort: 9 is not allowed; expected 0, since no sampling hides a client from who reads its "
    "messages,": {"dp_simulate_cohort": 9},
    "weighting: 'num-examples' is not allowed; expected 'uniform', since a client's number of examples is "
    "its own,": {"weighting": "num-examples"},
    "strategy: 'fednova' is not allowed; expected a rule that declares post_processes_mean = True": {
        "strategy": "fednova"
    },
    "dp-delta: missing; expected a number from 1e-15 on, below 1/num-clients (0.25),": {"dp_delta": 0},
    "client: 'shared' is not allowed; expected 'silobn' or 'fedbn', or a model with GroupNorm, with dp "
    "'local': it would share the BatchNorm statistics of 'mlp-bn', such as 2.num_batches_tracked": {
        "model": "mlp-bn"
    },
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_refused_in_one_line(configured, line):
    with pytest.raises(UserError) as error:
        Federation(small(configured, **REFUSED[line]))
    assert str(error.value) == (line if EXPECTED in line else f"{line} {EXPECTED}")


def test_what_is_warned_of(configured):
    """4 clients, noise 2 and 650 parameters: 2 over 2 times 25.5 is 0.039."""
    lines = list(Federation(small(configured, dp_delta=0.3)).privacy.notices())
    assert [line.partition(":")[0] for line in lines] == ["dp-delta", "dp", "dp-seed"]
    assert "the root of 4 clients a round over noise 2 times the root of 650 parameters is 0.039" in lines[1]
    assert not list(Federation(small(configured, dp_seed=-1, dp_noise=0.5)).privacy.notices())
