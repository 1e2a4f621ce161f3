"""Whole runs with client-level privacy: what is written, refused, repeated, and never told."""

import json
import os
import shutil
import stat
from dataclasses import replace

import numpy as np
import pytest

from clients import FedBNClient
from fedbn_flower.core.errors import RunFailed, UserError
from fedbn_flower.core.ground.columns import PRIVACY
from fedbn_flower.privacy import accounts, keys, ledger
from fedbn_flower.privacy.client_mechanism import ClientMechanism
from fedbn_flower.records.events import Observer
from fedbn_flower.server.federation import Federation

from ..records.helpers import rows_of
from ..secagg.grids import Lossy
from .runs import DP, FEW, charges, cut, model, resume, run_on, simulated


class Fails(FedBNClient):
    def fit(self, parameters, config):
        raise RuntimeError("no")


def test_a_run_without_it_says_nothing_of_it(configured, tmp_path):
    summary = simulated(configured(rounds=1), tmp_path / "run")
    assert "privacy" not in summary
    assert not set(PRIVACY) & rows_of(tmp_path / "run")[0].keys()
    assert not list((tmp_path / "run").rglob("privacy*"))


@pytest.mark.slow
def test_a_key_that_is_lost_makes_another_attempt_that_is_charged(configured, tmp_path):
    config = configured(**{**FEW, **DP, "dp_seed": -1, "rounds": 4, "checkpoint_every": 2})
    cut(config, tmp_path / "run", 3)
    (tmp_path / "run" / "checkpoint" / keys.NAME).unlink()
    summary = simulated(resume(config, tmp_path / "run"), tmp_path / "run")
    assert [(c["round"], c["attempt"]) for c in charges(tmp_path / "run")] == [
        (1, 1), (2, 1), (3, 1), (3, 2), (4, 1),
    ]  # fmt: skip
    plan = accounts.Plan("poisson", 0.5, 10, 4, 1e-3)
    assert summary["privacy"]["epsilon"] == accounts.epsilon(1.0, plan, 5)


@pytest.mark.slow
def test_a_folder_that_is_copied_never_has_one_noise_under_two_sums(configured, tmp_path, monkeypatch):
    """Both copies go on from round 2 with the same key and the same sample.

    In one of them an update is another one: the difference of the results is not that of the sums,
    since their noise differs.
    """
    config = configured(
        **{**FEW, **DP, "dp_seed": -1, "rounds": 3, "checkpoint_every": 2, "fraction_evaluate": 0}
    )
    cut(config, tmp_path / "one", 2)
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
    assert abs(noise["one"] @ noise["other"]) < 0.2  # of 650 numbers: five deviations


def test_other_answers_under_the_same_noise_end_the_run(configured, tmp_path):
    """The rate of round 3 depends on how many rounds there are: both results would tell the difference."""
    values = {"client_lr_schedule": "cosine", "rounds": 4, "checkpoint_every": 2}
    config = configured(**{**FEW, **DP, **values})
    cut(config, tmp_path / "run", 3)
    with pytest.raises(RunFailed, match="round 3 differs from what it has published before"):
        simulated(resume(config, tmp_path / "run", rounds=9), tmp_path / "run")


def test_nothing_leaves_before_the_ledger_is_on_the_disk(configured, tmp_path, monkeypatch):
    config = configured(**{**FEW, **DP, "rounds": 4})
    fsync, grid = os.fsync, Lossy(config)

    def failing(handle):
        if os.readlink(f"/proc/self/fd/{handle}").endswith(ledger.NAME) and len(grid.carried) > 12:
            raise OSError(5, "no disk")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(UserError, match=r"run-dir: cannot write to .*privacy\.jsonl.*no disk"):
        run_on(grid, config, tmp_path)
    done = len(rows_of(tmp_path))
    heard = [(step, message.content["config"]["server-round"]) for step, _, message, _ in grid.carried]
    assert max(number for _, number in heard) == done + 1  # trained, not published
    assert max(number for step, number in heard if step == "evaluate") <= done
    assert json.loads((tmp_path / "summary.json").read_text())["rounds"] == done


def test_the_key_is_in_its_file_alone(configured, tmp_path, caplog):
    config = configured(**{**FEW, **DP, "dp_seed": -1, "checkpoint_every": 1})
    grid, modes, text, holding = Lossy(config), set(), "", []

    class Looks(Observer):
        def on_round(self, result):
            nonlocal text, holding
            text = (tmp_path / "checkpoint" / keys.NAME).read_text().strip()
            holding = files_with(tmp_path, text)
            files = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
            modes.update(stat.S_IMODE(path.stat().st_mode) for path in files)

    with caplog.at_level("DEBUG"):
        run_on(grid, config, tmp_path, [Looks()])
    assert holding == [tmp_path / "checkpoint" / keys.NAME]
    assert modes == {0o600}  # its owner's alone, like what else stays at a client
    assert not files_with(tmp_path, text)  # the run is complete, and its key destroyed
    forms = forms_of(text)
    assert not holds(caplog.text.encode(), forms)
    for _, _, message, _ in grid.carried:
        assert not any(holds(repr(record).encode(), forms) for record in message.content.values())


def forms_of(text):
    return (text.encode(), bytes.fromhex(text), repr(bytes.fromhex(text)).encode())


def files_with(folder, text):
    """The files in which a key stands, in any form; one that is being written is not yet a file."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".tmp"]
    return [path for path in files if holds(path.read_bytes(), forms_of(text))]


def holds(content, forms):
    return any(form in content for form in forms)


@pytest.mark.slow
def test_nobody_who_answers_fails_the_run_but_a_round_without_answers_is_one(configured, tmp_path):
    config = configured(**{**FEW, **DP, "rounds": 6, "fraction_train": 0.02, "num_clients": 8})
    summary = simulated(config, tmp_path / "run")
    assert "0" in {row["replies"] for row in rows_of(tmp_path / "run")}
    assert summary["privacy"]["published"] == 6
    assert any("rounding" in line for line in summary["privacy"]["outside"])  # of noise in floating point
    config = configured(**{**FEW, **DP, "max_num_examples": 0, "client": f"{__name__}:Fails"})
    with pytest.raises(RunFailed, match="every client failed in every round"):
        simulated(config, tmp_path / "failed")


def test_what_is_outside_the_guarantee_goes_by_the_kind_of_noise(configured, tmp_path):
    for secure, said in ((False, "rounding"), (True, "how long the server takes")):
        privacy = Federation(configured(**FEW, **DP, dp_secure_noise=secure)).privacy
        (folder := tmp_path / said).mkdir()
        privacy.begin(folder, 0, False)
        told = " ".join(privacy.summary()["outside"])
        assert [text for text in ("rounding", "how long the server takes") if text in told] == [said]


@pytest.mark.slow
def test_secure_noise_is_told_with_its_own_epsilon(configured, tmp_path):
    values = {**FEW, **DP, "dp_noise": 0.0, "dp_epsilon": 8, "rounds": 3}
    found = simulated(configured(**values, dp_secure_noise=True), tmp_path / "run")["privacy"]
    told = {"mechanism": "discrete Gaussian", "grid-steps": 2**20, "accountant": "Renyi divergences"}
    assert {key: found[key] for key in told} == told
    assert not any("rounding" in line for line in found["outside"])
    plan = accounts.Plan("poisson", 0.5, 20, 3, 1e-3, secure=True)
    assert found["noise"] == accounts.noise_for(8, plan) > accounts.noise_for(8, replace(plan, secure=False))
    by_round = [accounts.epsilon(found["noise"], plan, t) for t in (1, 2, 3)]
    assert [float(row["epsilon"]) for row in rows_of(tmp_path / "run")] == by_round
    deviations = {float(row["noise-std"]) for row in rows_of(tmp_path / "run")}
    assert deviations == {found["noise"] / found["clients-a-round"]}
    assert json.loads((tmp_path / "run" / ledger.NAME).read_text().splitlines()[0])["secure"] is True
