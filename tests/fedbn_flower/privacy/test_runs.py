"""Whole runs with client-level privacy: what is written, refused, repeated, and never told."""

import csv
import json
import os
import shutil
import stat

import numpy as np
import pytest

from clients import FedBNClient
from fedbn_flower.config.making import run_config
from fedbn_flower.core.errors import RunFailed, UserError
from fedbn_flower.core.ground.columns import PRIVACY
from fedbn_flower.privacy import accounts, keys, ledger
from fedbn_flower.privacy.client_mechanism import ClientMechanism
from fedbn_flower.records.events import Observer
from fedbn_flower.results.resume import load_checkpoint
from fedbn_flower.results.run_folder import RunFolder
from fedbn_flower.runtime.inline import InlineGrid
from fedbn_flower.runtime.recorded_run import recorded_run
from fedbn_flower.runtime.simulation import make_grid, simulate
from fedbn_flower.server.federation import Federation

DP = {"dp": "client", "dp_noise": 1.0, "dp_delta": 1e-3, "dp_seed": 5}
MANY = {"num_clients": 20, "partition": "iid", "fraction_train": 0.5, "fraction_evaluate": 0.1}


class Fails(FedBNClient):
    def fit(self, parameters, config):
        raise RuntimeError("no")


def rows(folder):
    return list(csv.DictReader((folder / "metrics.csv").open()))


def charges(folder):
    return [json.loads(line) for line in (folder / ledger.NAME).read_text().splitlines()[1:]]


def model(folder):
    return (folder / "model.safetensors").read_bytes()


def simulated(config, folder, pool=None):
    return simulate(Federation(config), folder, pool).as_json()


def test_the_default_job_with_a_budget(configured, tmp_path):
    config = configured(dp="client", dp_epsilon=8, dp_delta=1e-5, rounds=3)
    summary = simulated(config, tmp_path / "run")
    found = summary["privacy"]
    plan = accounts.Plan("poisson", 1.0, 2, 3, 1e-5)
    noise = accounts.noise_for(8, plan)
    assert found["noise"] == noise
    assert 7.9 < found["epsilon"] <= 8
    by_round = [accounts.epsilon(noise, plan, t) for t in (1, 2, 3)]
    written = [{name: float(row[name]) for name in PRIVACY} for row in rows(tmp_path / "run")]
    assert [row["epsilon"] for row in written] == by_round
    assert {row["clip-norm"] for row in written} == {1.0}
    assert {row["noise-std"] for row in written} == {noise / 2}  # z C over two clients
    assert {k: found[k] for k in ("notion", "adjacency", "sampling", "claim", "delta")} == {
        "notion": "client, central",
        "adjacency": "add-or-remove-one",
        "sampling": "poisson",
        "claim": "guarantee",
        "delta": 1e-5,
    }
    assert (found["planned-epsilon"], found["planned-rounds"], found["published"]) == (8, 3, 3)
    assert len(found["outside"]) == 5


def test_a_run_without_it_says_nothing_of_it(configured, tmp_path):
    summary = simulated(configured(rounds=1), tmp_path / "run")
    assert "privacy" not in summary
    assert not set(PRIVACY) & rows(tmp_path / "run")[0].keys()
    assert not list((tmp_path / "run").rglob("privacy*"))


RULES = ("fedavg", "fedavgm", "fedadagrad", "fedyogi", "fedadam", "feddyn")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("rule", "client"),
    [
        pytest.param(rule, client, marks=[pytest.mark.exhaustive] if (i - j) % 3 else [])
        for i, rule in enumerate(RULES)
        for j, client in enumerate(("fedbn", "silobn", "fedper+silobn"))
    ],
)
def test_every_rule_and_client_that_can(configured, tmp_path, rule, client):
    objective = "feddyn" if rule == "feddyn" else "plain"
    config = configured(
        strategy=rule, objective=objective, client=client, rounds=2, num_clients=4, partition="iid", **DP
    )
    summary = simulated(config, tmp_path / "run")
    assert summary["privacy"]["published"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("clip", ["0.05", "adaptive", "secure"])
def test_the_bits_do_not_depend_on_where_answers_are_summed(configured, tmp_path, clip):
    """Updates are longer than 0.05, and than the 0.1 with which an adaptive clip begins."""
    changed = {"dp_secure_noise": True} if clip == "secure" else {"dp_clip": clip}
    config = configured(rounds=2, **{**MANY, **DP, "dp_noise": 0.9, **changed})

    def run(name, summed):
        federation = Federation(config)
        grid = make_grid(federation, None)
        if not summed:
            grid = InlineGrid(config.num_clients, config.to_user_config(), grid.cohort)
            federation.strategy._takes_sums_ = False
        assert grid.sums == summed
        (tmp_path / name).mkdir()
        results = RunFolder(tmp_path / name, federation, grid.client_memory)
        recorded_run(federation, grid, results, [], None)
        return model(tmp_path / name), charges(tmp_path / name)

    assert run("summed", True) == run("apart", False)


class Stops(Observer):
    """Ends a run after a round, as a kill would: the round is written, the next one begins."""

    def __init__(self, after):
        self.after = after

    def on_round(self, result):
        if result.server_round == self.after:
            raise KeyboardInterrupt


def resume(config, folder, **changed):
    values = {**config.to_user_config(), "resume": str(folder), "run-dir": str(folder), **changed}
    return run_config(values)


@pytest.mark.parametrize(
    ("clip", "sampling", "secret"),
    [
        pytest.param(*values, secret, marks=some_of if secret == kept else [pytest.mark.exhaustive])
        for *values, kept, some_of in (
            ("0.5", "poisson", 1, []),
            ("adaptive", "poisson", 0, [pytest.mark.slow]),
            ("0.5", "cyclic", 1, [pytest.mark.slow]),
        )
        for secret in (False, True)
    ],
)
def test_a_resumed_run_has_the_bits_and_the_ledger_of_one_that_never_stopped(
    configured, tmp_path, clip, sampling, secret, monkeypatch
):
    monkeypatch.setattr(keys.secrets, "token_bytes", lambda count: bytes(range(count)))
    seed = {"dp_seed": -1 if secret else 5, "dp_sampling": sampling, "dp_clip": clip}
    values = {**MANY, **DP, **seed, "dp_noise": 0.9, "rounds": 5, "checkpoint_every": 2}
    config = configured(**values)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    simulated(config, whole)
    with pytest.raises(KeyboardInterrupt):
        simulate(Federation(config), stopped, None, [Stops(3)])
    assert [line["round"] for line in charges(stopped)] == [1, 2, 3]  # the checkpoint is of round 2
    monkeypatch.setattr(keys.secrets, "token_bytes", bytes)  # another key, were one made
    simulated(resume(config, stopped), stopped)
    assert model(stopped) == model(whole)
    assert (stopped / ledger.NAME).read_text() == (whole / ledger.NAME).read_text()
    columns = [[row[name] for name in PRIVACY] for row in rows(whole)]
    assert [[row[name] for name in PRIVACY] for row in rows(stopped)] == columns


def test_a_key_that_is_lost_makes_another_attempt_that_is_charged(configured, tmp_path):
    config = configured(**{**MANY, **DP, "dp_seed": -1, "rounds": 4, "checkpoint_every": 2})
    with pytest.raises(KeyboardInterrupt):
        simulate(Federation(config), tmp_path / "run", None, [Stops(3)])
    (tmp_path / "run" / "checkpoint" / keys.NAME).unlink()
    summary = simulated(resume(config, tmp_path / "run"), tmp_path / "run")
    assert [(c["round"], c["attempt"]) for c in charges(tmp_path / "run")] == [
        (1, 1), (2, 1), (3, 1), (3, 2), (4, 1),
    ]  # fmt: skip
    plan = accounts.Plan("poisson", 0.5, 20, 4, 1e-3)
    assert summary["privacy"]["epsilon"] == accounts.epsilon(1.0, plan, 5)


def test_supernodes_cannot_repeat_a_round_so_it_is_charged_again(configured, tmp_path, caplog):
    """Their memories may have moved on. Of a budget for four rounds the repeated one takes the last."""
    config = configured(**{**MANY, **DP, "dp_noise": 0, "dp_epsilon": 8, "rounds": 4, "checkpoint_every": 2})

    def run(config, *observers):
        federation = Federation(config)
        grid = InlineGrid(config.num_clients, {**config.to_user_config(), "resume": ""})
        checkpoint = load_checkpoint(config, clients_here=False) if config.resume else None
        results = RunFolder(tmp_path, federation, checkpoint=checkpoint)
        return recorded_run(federation, grid, results, observers, checkpoint).as_json()

    with pytest.raises(KeyboardInterrupt):
        run(config, Stops(3))
    with caplog.at_level("WARNING", "flwr"):
        summary = run(resume(config, tmp_path))
    assert [(c["round"], c["attempt"]) for c in charges(tmp_path)] == [(1, 1), (2, 1), (3, 1), (3, 2)]
    assert "privacy: budget spent at round 3 of 4" in caplog.text
    assert (summary["rounds"], summary["stopped"]) == (3, "budget")
    assert summary["privacy"]["epsilon"] == charges(tmp_path)[-1]["epsilon"] <= 8


def test_a_spent_budget_ends_the_run_with_its_model(configured, tmp_path, caplog):
    values = {**MANY, **DP, "dp_noise": 0, "dp_epsilon": 8, "rounds": 4}
    config = configured(**values, checkpoint_every=1)
    with pytest.raises(KeyboardInterrupt):
        simulate(Federation(config), tmp_path / "run", None, [Stops(2)])
    with caplog.at_level("WARNING", "flwr"):
        summary = simulated(resume(config, tmp_path / "run", rounds=9), tmp_path / "run")
    assert [one.getMessage() for one in caplog.records if "budget" in one.getMessage()] == [
        "privacy: budget spent at round 4 of 9"
    ]
    assert (summary["rounds"], summary["stopped"]) == (4, "budget")
    assert 7.9 < summary["privacy"]["epsilon"] <= 8
    assert summary["mean"]["accuracy"] == float(rows(tmp_path / "run")[-1]["accuracy"])


class Dies(Observer):
    """Ends a run in a phase of a round, once everybody has answered."""

    def __init__(self, within, phase="evaluate"):
        self.within = (within, phase)

    def on_answer(self, server_round, phase, done, total):
        if (server_round, phase) == self.within and done == total:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize(("dp", "phase"), [("client", "evaluate"), ("local", "train")])
def test_repeated_rounds_cost_nothing_also_if_the_budget_is_spent_in_them(configured, tmp_path, dp, phase):
    """All four rounds are charged when it dies, and the checkpoint is of round 2.

    So rounds 3 and 4 are repeated, to the model of the run that was not killed.
    """
    values = {**MANY, **DP, "dp": dp, "dp_noise": 0, "dp_epsilon": 8, "rounds": 4, "checkpoint_every": 2}
    config = configured(**values | ({"weighting": "uniform"} if dp == "local" else {}))
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    simulated(config, whole)
    with pytest.raises(KeyboardInterrupt):
        simulate(Federation(config), stopped, None, [Dies(4, phase)])
    assert [line["round"] for line in charges(stopped)] == [1, 2, 3, 4]
    summary = simulated(resume(config, stopped), stopped)
    assert summary["rounds"] == 4
    assert len(charges(stopped)) == 4
    assert model(stopped) == model(whole)


@pytest.mark.slow
def test_a_folder_that_is_copied_never_has_one_noise_under_two_sums(configured, tmp_path, monkeypatch):
    """Both copies go on from round 2 with the same key and the same sample. In one of them an update
    is another
    one: the difference of the results is not that of the sums, since their noise differs."""
    config = configured(
        **{**MANY, **DP, "dp_seed": -1, "rounds": 3, "checkpoint_every": 2, "fraction_evaluate": 0}
    )
    with pytest.raises(KeyboardInterrupt):
        simulate(Federation(config), tmp_path / "one", None, [Stops(2)])
    for name in ("again", "other"):
        shutil.copytree(tmp_path / "one", tmp_path / name)
    sums = {}

    def heard(self, server_round, total, within):
        sums[name] = total.copy()
        published = publish(self, server_round, total, within)
        sums[name] -= published * self.num_answers  # the noise, with the other sign
        return published

    publish = ClientMechanism.publish
    monkeypatch.setattr(ClientMechanism, "publish", heard)
    for name, rate in (("one", 0.01), ("again", 0.01), ("other", 0.011)):
        changed = resume(config, tmp_path / name).model_copy(update={"client_lr": rate})
        simulated(changed, tmp_path / name)
    assert model(tmp_path / "one") == model(tmp_path / "again")
    noise = {name: vector / np.linalg.norm(vector) for name, vector in sums.items()}
    assert noise["one"] @ noise["again"] == pytest.approx(1)
    assert abs(noise["one"] @ noise["other"]) < 0.1


def test_what_stays_at_a_client_is_its_owners_alone_on_the_disk(configured, tmp_path):
    config = configured(**{**MANY, **DP, "dp_seed": -1, "rounds": 2, "checkpoint_every": 1})
    modes = set()

    class Looks(Observer):
        def on_round(self, result):
            if result.server_round == 2:
                files = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
                modes.update(stat.S_IMODE(path.stat().st_mode) for path in files)

    simulate(Federation(config), tmp_path, None, [Looks()])
    assert modes == {0o600}
    assert not (tmp_path / "checkpoint" / keys.NAME).exists()


def test_more_rounds_than_a_complete_run_was_calibrated_for_are_refused(configured, tmp_path):
    config = configured(**{**MANY, **DP, "dp_noise": 0, "dp_epsilon": 8, "rounds": 2})
    simulated(config, tmp_path / "run")
    wanted = r"rounds: 3 is not allowed; expected 2: the privacy budget is spent at round 2"
    with pytest.raises(UserError, match=wanted):
        simulated(resume(config, tmp_path / "run", rounds=3), tmp_path / "run")


def test_with_a_given_noise_a_run_may_go_on(configured, tmp_path):
    config = configured(**{**MANY, **DP, "rounds": 2})
    before = simulated(config, tmp_path / "run")["privacy"]["epsilon"]
    after = simulated(resume(config, tmp_path / "run", rounds=3), tmp_path / "run")["privacy"]
    assert after["epsilon"] > before
    assert after["published"] == 3


def test_other_answers_under_the_same_noise_end_the_run(configured, tmp_path):
    """The rate of round 3 depends on how many rounds there are: both results would tell the difference."""
    values = {"client_lr_schedule": "cosine", "rounds": 4, "checkpoint_every": 2}
    config = configured(**{**MANY, **DP, **values})
    with pytest.raises(KeyboardInterrupt):
        simulate(Federation(config), tmp_path / "run", None, [Stops(3)])
    with pytest.raises(RunFailed, match="round 3 differs from what it has published before"):
        simulated(resume(config, tmp_path / "run", rounds=9), tmp_path / "run")


def test_nothing_leaves_before_the_ledger_is_on_the_disk(configured, tmp_path, monkeypatch):
    config = configured(**{**MANY, **DP, "rounds": 4})
    fsync, heard = os.fsync, []

    class Listening(InlineGrid):
        def work(self, messages, timeout):
            heard.extend(messages)
            yield from super().work(messages, timeout)

    def failing(handle):
        if os.readlink(f"/proc/self/fd/{handle}").endswith(ledger.NAME) and len(heard) > 12:
            raise OSError(5, "no disk")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", failing)
    federation = Federation(config)
    grid = Listening(config.num_clients, config.to_user_config())
    results = RunFolder(tmp_path, federation, grid.client_memory)
    with pytest.raises(UserError, match=r"run-dir: cannot write to .*privacy\.jsonl.*no disk"):
        recorded_run(federation, grid, results, [], None)
    done = len(rows(tmp_path))
    assert max(m.content["config"]["server-round"] for m in heard) == done + 1  # trained, not published
    assert not any(
        m.metadata.message_type == "evaluate" and m.content["config"]["server-round"] > done for m in heard
    )
    assert json.loads((tmp_path / "summary.json").read_text())["rounds"] == done


def test_the_key_is_in_its_file_alone(configured, tmp_path, caplog):
    config = configured(**{**MANY, **DP, "dp_seed": -1})
    messages = []

    class Listening(InlineGrid):
        def work(self, messages_, timeout):
            messages.extend(messages_)
            yield from super().work(messages_, timeout)

    federation = Federation(config)
    grid = Listening(config.num_clients, config.to_user_config())
    text, holding = "", []

    class Looks(Observer):
        def on_round(self, result):
            nonlocal text, holding
            text = (tmp_path / "checkpoint" / keys.NAME).read_text().strip()
            holding = files_with(tmp_path, text)

    with caplog.at_level("DEBUG"):
        results = RunFolder(tmp_path, federation, grid.client_memory)
        recorded_run(federation, grid, results, [Looks()], None)
    assert holding == [tmp_path / "checkpoint" / keys.NAME]
    assert not files_with(tmp_path, text)  # the run is complete, and its key destroyed
    forms = forms_of(text)
    assert not holds(caplog.text.encode(), forms)
    for message in messages:
        assert not any(holds(repr(record).encode(), forms) for record in message.content.values())


def forms_of(text):
    return (text.encode(), bytes.fromhex(text), repr(bytes.fromhex(text)).encode())


def files_with(folder, text):
    """The files in which a key stands, in any form; one that is being written is not yet a file."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".tmp"]
    return [path for path in files if holds(path.read_bytes(), forms_of(text))]


def holds(content, forms):
    return any(form in content for form in forms)


def test_nobody_who_answers_fails_the_run_but_a_round_without_answers_is_one(configured, tmp_path):
    config = configured(**{**MANY, **DP, "rounds": 6, "fraction_train": 0.02, "num_clients": 8})
    summary = simulated(config, tmp_path / "run")
    assert "0" in {row["replies"] for row in rows(tmp_path / "run")}
    assert summary["privacy"]["published"] == 6
    config = configured(**{**MANY, **DP, "max_num_examples": 0, "client": f"{__name__}:Fails"})
    with pytest.raises(RunFailed, match="every client failed in every round"):
        simulated(config, tmp_path / "failed")
