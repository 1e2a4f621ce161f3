"""Folders as version 0.1.0 left them: no ``shape``, every setting told, memories without metadata."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from fedbn_flower import UserError, cli, load_model

ALL_SETTINGS = {"alpha": 0.01, "mu": 0.01, "mean": "weighted", "lockstep": "auto", "experiment": "default"}
LATER = ("shape", "data", "client-names", "fast", "memory-name", "final-test", "problem")


def as_0_1(folder):
    """The run's folder as version 0.1.0 would have left it."""
    facts = json.loads((folder / "config.json").read_text())
    facts = {key: value for key, value in facts.items() if key not in LATER} | ALL_SETTINGS
    facts["versions"]["fedbn-flower"] = "0.1.0"
    (folder / "config.json").write_text(json.dumps(facts))
    server = folder / "checkpoint" / "server.safetensors"
    with safe_open(server, "np") as file:
        output = json.loads(file.metadata()["facts"])
    output = {key: output[key] for key in ("round", "updates", "counters", "run")} | {"has-clients": True}
    save_file(load_file(server), server, {"facts": json.dumps(output)})
    for path in sorted(server.parent.glob("clients/client-*")):
        _, partition, *_, last = path.stem.split("-")
        entries = load_file(path)
        path.unlink()
        save_file(entries, path.with_name(f"{partition}-{int(last)}.safetensors"))
    return folder


@pytest.fixture
def old(run):
    return as_0_1(run(rounds=2).folder)


def test_resume_says_that_the_version_is_too_old(old, capsys):
    assert cli.main(["--resume", str(old), "--rounds", "3"]) == 2
    output = f"error: resume: {str(old)!r} is a run of version 0.1.0, which is too old to resume; "
    assert capsys.readouterr().err == f"{output}load_model still loads its models\n"
    assert cli.main(["--experiment", str(old / "config.json")]) == 2
    assert "is a run of version 0.1.0, which had other keys" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["resume", "run-dir"])
def test_so_it_does_of_a_sweep(old, tmp_path, key, capsys):
    sweep = tmp_path / "sweep"
    sweep.mkdir()
    old.rename(sweep / "fedyogi-fedbn-sgd-seed0")
    (sweep / "grid.csv").write_text("strategy\n")
    assert cli.main([f"--{key}", str(sweep), *(["--seed", "0,1"] if key == "run-dir" else [])]) == 2
    assert f"{key}: {str(sweep)!r} is a sweep of version 0.1.0" in capsys.readouterr().err


def test_its_models_are_loaded(run):
    """Each client's, and of the round that the checkpoint is of; a later memory was never complete."""
    folder = run(rounds=2).folder
    expected = [load_model(folder, client).state_dict() for client in (0, 1)]
    as_0_1(folder)
    clients = folder / "checkpoint" / "clients"
    (clients / "1-3.safetensors").write_bytes((clients / "0-2.safetensors").read_bytes())
    for client in (0, 1):
        found = load_model(folder, client).state_dict()
        assert found.keys() == expected[client].keys()
        assert all(torch.equal(found[name], entry) for name, entry in expected[client].items())
    for path in clients.glob("0-*"):
        path.unlink()
    with pytest.raises(UserError, match="client: 0 is not allowed; expected one whose memory is in"):
        load_model(folder, client=0)


def test_so_is_the_global_one(run):
    folder = run(rounds=1, client="fedavg").folder
    expected = load_model(folder).state_dict()
    found = load_model(as_0_1(folder)).state_dict()
    assert all(torch.equal(found[name], entry) for name, entry in expected.items())
