"""Real processes of the tests: started as a person does, known by a mark, ended by their ids."""

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
STUBS = Path(__file__).with_name("sooner")
"""On the path of Python, it saves a quarter of PyTorch's import: a part that torchmetrics needs."""
BELLS = tempfile.TemporaryDirectory(prefix="bells-")
Path(BELLS.name).chmod(0o777)  # of the users of a consortium, too
SOONER = {
    "FEDBN_TEST_BELLS": BELLS.name,
    "HF_HUB_OFFLINE": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",  # seconds; by default one, for every message
    "OMP_NUM_THREADS": "1",  # more would wait for each other
    "PYTHONPATH": str(STUBS),  # and no checkout: an app brings its own files
}
"""The environment of a federation that waits less than by default."""
FORKING = SOONER | {"FEDBN_TEST_FORKS": "1"}
"""And which forks what answers a message, see `sooner/forks.py`."""
FORGETTING = FORKING | {"FEDBN_TEST_FORGETS": "1"}
"""And whose SuperLink, which no test starts again, has no database: half of what a request costs it."""
DOORS = """import sys

sys.path.insert(0, {project!r})

from fedbn_flower import client_app, server_app

client = client_app.app
server = server_app.app
"""


LONG = 1800.0
"""Seconds that nothing takes, however busy the machine is: what hangs ends at last."""


def wait_for(condition, process=None):
    """Wait until it holds, or until the process has ended that would bring it about, which is a failure."""
    deadline = time.monotonic() + LONG
    while not condition():
        ended = process is not None and process.poll() is not None
        assert condition() or not ended, "it has ended before"
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def light_app(folder, project):
    """An app of two files, which find the rest in a project: a SuperNode unpacks all of an app for every
    message."""
    folder.mkdir()
    text = (project / "pyproject.toml").read_text()
    for side in ("client", "server"):
        app = f'"fedbn_flower.{side}_app:app"'
        assert text.count(app) == 1
        text = text.replace(app, f'"doors:{side}"')
    (folder / "pyproject.toml").write_text(text)
    (folder / "doors.py").write_text(DOORS.format(project=str(project)))
    return folder


def start_flwr_run(federation, app, folder, name, **keys):
    """``flwr run`` in the background: its results are in the folder ``name``, its output in ``name.log``."""
    given = keys | {"run-dir": folder / name}
    words = " ".join(f"{key}={json.dumps(value, default=str)}" for key, value in given.items())
    with (folder / f"{name}.log").open("a") as log:
        return subprocess.Popen(
            ["flwr", "run", str(app), "local", "--stream", "--run-config", words],
            cwd=folder, env=federation.environment, stdout=log, stderr=log,
        )  # fmt: skip


def processes_with(variable):
    """Ids of the processes whose environment holds this assignment."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


def runs(pid, program):
    """Whether a process runs a program, whose path ends so."""
    with contextlib.suppress(OSError):  # it has ended meanwhile
        words = (Path("/proc") / str(pid) / "cmdline").read_bytes().decode().split("\0")
        return any(word.endswith(program) for word in words)
    return False


def end(variable, *signals):
    """End what a test started, by id, and wait for it; politely first, unless other signals are given.

    Half a minute is lost on what is left of a Ray: without the rest of it, its agents do not heed SIGTERM.
    """
    for how in signals or (signal.SIGTERM, signal.SIGKILL):
        for pid in processes_with(variable):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)
                os.kill(pid, signal.SIGCONT)  # one that was stopped hears the first only then
        deadline = time.monotonic() + (LONG if how == signal.SIGKILL else 30)
        while processes_with(variable) and time.monotonic() < deadline:
            time.sleep(0.2)
    assert not processes_with(variable)


def tracebacks(log):
    """How many a SuperNode's log has, but for Flower's own of a heartbeat whose task has just ended."""
    late = re.findall(r"^httpx\.HTTPStatusError: .*'401 .*/send-task-heartbeat'", log, re.MULTILINE)
    return log.count("Traceback") - len(late)


KNOWN = "SuperNode ID"
"""A SuperNode's log has it once the SuperLink knows it."""


def miss(log, database):
    """Have the SuperLink with this database miss the SuperNode with this log, which was killed, at once, not
    after a while."""
    node = np.uint64(int(re.findall(rf"{KNOWN}: (\d+)", log.read_text())[-1]))
    with contextlib.closing(sqlite3.connect(database, timeout=LONG)) as connection:
        change = "UPDATE node SET online_until = 0 WHERE node_id = ?"
        assert connection.execute(change, [int(node.view(np.int64))]).rowcount == 1
        connection.commit()


def kill_superlink(superlink):
    """Kill it and the programs of its runs, as systemd does when the main process of a unit has died.

    These are in sessions of their own, and go on with their runs if it is back before they miss it.
    """
    os.killpg(superlink.process.pid, signal.SIGKILL)
    for pid in processes_with(f"FLWR_HOME={superlink.environment['FLWR_HOME']}"):
        if runs(pid, "flwr-serverapp"):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def marked():
    """An environment by which the processes that are started with it are known, and its mark; they end."""
    mark = f"FEDBN_TEST={os.getpid()}-{time.monotonic_ns()}"
    try:
        path = os.pathsep.join(filter(None, [str(STUBS), os.environ.get("PYTHONPATH")]))
        yield mark, {**os.environ, "FEDBN_TEST": mark.split("=")[1], "PYTHONPATH": path}
    finally:
        end(mark)


def bits(folder):
    return (Path(folder) / "model.safetensors").read_bytes()
