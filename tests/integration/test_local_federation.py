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
    """The guide's first command."""
    guide = Guide(tmp_path)
    output = guide.run("user try", "user")
    assert "SuperLink and 2 SuperNodes are up" in output
    assert "round 2: " in output


def test_a_federation_for_one_command_ends_with_the_status_of_its_run(tmp_path, cache_dir):
    """Without a run-dir the results lie in the SuperLink's FLWR_HOME; a run that failed is an exit status."""
    command = [sys.executable, "deploy/local_federation.py", "--folder", tmp_path / "federation"]

    def flwr_run(*options):
        return subprocess.run(
            [*command, "--", "flwr", "run", ".", *options], cwd=ROOT, capture_output=True, text=True,
            timeout=300, env=os.environ | OFFLINE,
        )  # fmt: skip

    result = flwr_run("--stream", "--run-config", f"rounds=1 cache-dir='{cache_dir}'")
    assert result.returncode == 0, result.stdout + result.stderr
    (folder,) = (tmp_path / "federation/superlink/flwr/fedbn-flower/runs").iterdir()
    assert f"results are in {folder}" in result.stdout
    assert rounds_done(folder) == 1
    for stream in (["--stream"], []):
        result = flwr_run(*stream, "--run-config", "strategy='fedyog'")
        assert result.returncode == 1
        assert re.fullmatch(r"run \d+: finished:failed", result.stderr.splitlines()[-1])
