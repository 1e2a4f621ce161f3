"""A node that is a process which does nothing, and its workers."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from fedbn_flower.core.private import identify_process
from fedbn_flower.warm import workers

from ...integration.processes import end, processes_with

STAND_IN = Path(__file__).with_name("stand_in.py")


@contextmanager
def a_node():
    """Asks the workers of this node, in a short folder: many systems have no long path of a socket."""
    mark, folder = f"FEDBN_TEST={os.getpid()}-{time.monotonic_ns()}", Path(tempfile.mkdtemp(prefix="w"))
    with pytest.MonkeyPatch.context() as patch, subprocess.Popen(["sleep", "600"]) as process:
        patch.setenv(*mark.split("="))
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        patch.setattr(workers, "BOOT", STAND_IN)
        patch.setattr(workers, "descriptor_of", os.pidfd_open)
        yield Asking(folder, process.pid, mark)
        process.kill()
        process.wait()
        end(mark)
        identify_process(1)
    shutil.rmtree(folder)


@pytest.fixture
def node():
    """A node of this test, with which all of its workers end."""
    with a_node() as asked:
        yield asked


@pytest.fixture(scope="module")
def lasting_node():
    """A node for tests after each of which its one worker still serves."""
    with a_node() as asked:
        yield asked


class Asking:
    """Asks as the client processes of one node do."""

    def __init__(self, folder, process, mark, node_id=5):
        self.folder, self.process, self.mark, self.node_id = folder, process, mark, node_id
        self.state = RecordDict()
        self.record = folder / f"record-{node_id}"

    def ask(self, run=7, node_config=None, run_config=None, query="train", **asked):
        """The answer of the worker: its process, and how often the client's state has changed."""
        identify_process(run, self.node_id, 3)
        content = RecordDict({"asked": ConfigRecord({"record": str(self.record), **asked})})
        message = Message(content, self.node_id, query)
        context = Context(run, self.node_id, node_config or {}, self.state, run_config or {})
        answer = workers.ask(message, context, self.process)
        self.state = answer.state
        if answer.failure:
            raise answer.failure
        return SimpleNamespace(**answer.reply.content.config_records.get("answer", {}))

    def served(self):
        """Which processes began to answer, one for each time."""
        return self.record.read_text().split() if self.record.exists() else []

    def workers(self):
        """The processes of workers that live, and what they have started."""
        return sorted(
            pid for pid in processes_with(self.mark) if pid != self.process and state_of(pid) != "Z"
        )

    def places(self):
        return [path for folder in self.folder.glob("fedbn-*") for path in folder.iterdir()]


def state_of(pid):
    """Its letter in ``/proc``: ``T`` if it is stopped, ``Z`` if only its parent does not know its end."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def stop(pid):
    os.kill(pid, signal.SIGSTOP)


def go_on(pid):
    os.kill(pid, signal.SIGCONT)
