"""Apps written for Flower's strategies, under a real ``flwr run``, with only the import changed."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.strategies.scenarios import assert_same

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
APPS = Path(__file__).parent / "flower_apps"
THEIRS, OURS = "from flwr.serverapp.strategy import", "from strategies import"


def processes_with(variable):
    """Ids of the processes whose environment holds this assignment."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


@pytest.fixture(scope="module")
def superlink(tmp_path_factory):
    """Runs apps one after the other on one managed SuperLink; ends what it started."""
    home = tmp_path_factory.mktemp("flwr_home")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    environment = {
        **os.environ,
        "FLOWER_APPS_TEST": mark,
        "FLWR_HOME": str(home),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }

    def run(folder):
        out = folder / "result.json"
        simulation = "num-supernodes=3 client-resources-num-cpus=1 init-args-num-cpus=2"
        result = subprocess.run(
            ["flwr", "run", str(folder), "--stream", "-c", f"out='{out}'", "--federation-config", simulation],
            cwd=home, env=environment, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert out.exists(), result.stdout + result.stderr
        return json.loads(out.read_text())

    yield run
    for how in (signal.SIGTERM, signal.SIGKILL):
        for pid in processes_with(f"FLOWER_APPS_TEST={mark}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)
        deadline = time.monotonic() + 30
        while processes_with(f"FLOWER_APPS_TEST={mark}") and time.monotonic() < deadline:
            time.sleep(0.2)


@pytest.mark.parametrize("app", ["quickstart", "schedule", "records"])
def test_only_the_import_is_changed(app, superlink, tmp_path):
    """Flower's numbers to 1e-6, and the same names in the same order."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for folder in (theirs, ours):
        shutil.copytree(APPS / app, folder)
    shutil.copytree(ROOT / "strategies", ours / "strategies", ignore=shutil.ignore_patterns("__pycache__"))
    server = ours / f"{app}_app" / "server_app.py"
    assert server.read_text().count(THEIRS) == 1
    server.write_text(server.read_text().replace(THEIRS, OURS))
    assert_same(superlink(theirs), superlink(ours))
