"""Programs of a federation ring when they have something for others, who need not look for it all the time:
each look takes ten milliseconds of CPU at both ends."""

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

SLEEP = time.sleep
EVERY = 0.05
"""Seconds after which who waits looks whether it was rung for."""
SELDOM = 1.0
"""Seconds after which a SuperExec looks for tasks that nobody has rung for."""


class Bell:
    """That of the API whose port is behind this option of the command line; its file has when it was rung,
    first by who has this API."""

    def __init__(self, option):
        address = sys.orig_argv[sys.orig_argv.index(option) + 1]
        self.file = Path(os.environ["FEDBN_TEST_BELLS"]) / address.rpartition(":")[2]
        self.heard = 0

    def ring(self):
        """Also where another user's program has had this port."""
        new = self.file.with_suffix(f".{os.getpid()}")
        new.touch()
        os.utime(new, ns=(time.time_ns(),) * 2)
        new.replace(self.file)

    def rung(self):
        return self.file.stat().st_mtime_ns if self.file.exists() else 0

    def wait(self, longest, without):
        """Wait for seconds, at the longest, until it rings; behind a proxy, unheard, for less."""
        deadline = time.monotonic() + (longest if self.heard else without)
        while (rung := self.rung()) == self.heard and time.monotonic() < deadline:
            SLEEP(EVERY)
        self.heard = rung


def rings_for_its_superexec(client):
    """A SuperNode, once it has a message."""
    bell, push = Bell("--port"), client._push_messages
    bell.ring()

    def ringing(**given):
        bell.ring()
        push(**given)

    client._push_messages = ringing


def rings_for_supernodes(grid):
    """The server of a run, once its messages are at the SuperLink."""
    bell, push = Bell("--runtime-api-address"), grid.push_messages

    def ringing(self, messages):
        sent = push(self, messages)
        bell.ring()
        return sent

    grid.push_messages = ringing


def waits_for_tasks(superexec):
    bell = Bell("--runtime-api-address")
    superexec.time = SimpleNamespace(sleep=lambda seconds: bell.wait(SELDOM, seconds))
