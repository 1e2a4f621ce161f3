"""deploy/local_federation.py: SuperNodes on this machine, for one command."""

import os
import re
import subprocess
import sys

import pytest

from deploy.local_federation import ROOT

from .guide import OFFLINE, Guide
from .test_deployment import rounds_done

pytestmark = pytest.mark.slow


def test_a_federation_in_one_command(tmp_path):
    """The guide's first. Without a run-dir the results lie in the SuperLink's FLWR_HOME."""
    guide = Guide(tmp_path)
    output = guide.run("user try", "user")
    assert "SuperLink and 2 SuperNodes are up" in output
    assert "round 1: " in output
    (folder,) = (tmp_path / "user").glob("federation-*/superlink/flwr/fedbn-flower/runs/*")
    assert f"results are in {folder}" in output
    assert rounds_done(folder) == 1


def test_a_federation_ends_with_its_runs_and_one_that_failed_is_an_exit_status(tmp_path):
    """``flwr run`` itself ends at once here, and well."""
    result = subprocess.run(
        [sys.executable, "deploy/local_federation.py", "--folder", tmp_path / "federation",
         "--", "flwr", "run", ".", "--run-config", "strategy='fedyog'"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, env=os.environ | OFFLINE,
    )  # fmt: skip
    assert result.returncode == 1
    assert re.fullmatch(r"run \d+: finished:failed", result.stderr.splitlines()[-1])
