"""deploy/local_federation.py: SuperNodes on this machine, for one command."""

import subprocess
import sys

import pytest

from deploy import local_federation

from .guide import Guide
from .test_deployment import rounds_done


@pytest.mark.slow
def test_a_federation_in_one_command(tmp_path):
    """The guide's first. Without a run-dir the results lie in the SuperLink's FLWR_HOME."""
    guide = Guide(tmp_path)
    output = guide.run("user try", "user")
    assert "SuperLink and 2 SuperNodes are up" in output
    assert "round 1: " in output
    (folder,) = (tmp_path / "user").glob("federation-*/superlink/flwr/fedbn-flower/runs/*")
    assert f"results are in {folder}" in output
    assert rounds_done(folder) == 1


@pytest.mark.parametrize(
    ("command", "complete", "status"), [(0, True, 0), (0, False, 1), (3, True, 3), (3, False, 3)]
)
def test_its_exit_status_is_the_commands_or_reports_a_run_that_failed(
    tmp_path, monkeypatch, command, complete, status
):
    """What the federation says of its runs is `test_hostile`'s."""
    asked = []

    class Federation:
        def __init__(self, folder, *settings):
            self.folder = folder

        def __enter__(self):
            return self

        def __exit__(self, *_):
            asked.append("ended")

        def runs(self):
            return {"1": "finished:failed"}

        def run(self, words):
            asked.append(words)
            return subprocess.CompletedProcess(words, command)

        def all_complete(self, but):
            asked.append(but)
            return complete

    monkeypatch.setattr(local_federation, "LocalFederation", Federation)
    monkeypatch.setattr(local_federation.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["local_federation.py", "--folder", str(tmp_path), "--", "flwr", "run"])
    assert local_federation.main() == status
    assert asked[0] == ["flwr", "run"]
    assert asked[1:-1] == ([] if command else [{"1": "finished:failed"}])
    assert asked[-1] == "ended"
