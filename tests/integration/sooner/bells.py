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
"""Seconds after which a SuperExec looks for tasks that nobody has rung for, and a server for answers."""
ANSWERS = ".answers"
"""Ends the name of the bell that a server hears."""


class Bell:
    """That of the API whose port is behind this option of the command line; its file has when it was rung,
    first by who has this API. An API may have another one, of a name that ends so."""

    def __init__(self, option, end=""):
        address = sys.orig_argv[sys.orig_argv.index(option) + 1]
        self.file = Path(os.environ["FEDBN_TEST_BELLS"]) / f"{address.rpartition(':')[2]}{end}"
        self.heard = 0

    def ring(self):
        """Also where another user's program has had this port."""
        new = self.file.with_name(f"{self.file.name}.{os.getpid()}")
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
    """A SuperNode, once it has a message; and for servers, once its answer is at the SuperLink."""
    bell, answers, push = Bell("--port"), Bell("--superlink", ANSWERS), client._push_messages
    bell.ring()

    def ringing(**given):
        bell.ring()
        push(**given)
        answers.ring()

    client._push_messages = ringing


def rings_for_supernodes(grid):
    """The server of a run, once its messages are at the SuperLink."""
    bell, push = Bell("--runtime-api-address"), grid.push_messages

    def ringing(self, messages):
        sent = push(self, messages)
        bell.ring()
        return sent

    grid.push_messages = ringing


def listens_for_answers(grid):
    """The server of a run, unless nobody rings, as behind a proxy."""
    bell, pull, last = Bell("--runtime-api-address", ANSWERS), grid.pull_messages, [0.0]

    def listening(self, message_ids):
        rung, now = bell.rung(), time.monotonic()
        if rung and rung == bell.heard and now - last[0] < SELDOM:
            return []
        bell.heard, last[0] = rung, now
        return pull(self, message_ids)

    grid.pull_messages = listening


def waits_for_tasks(superexec):
    bell = Bell("--runtime-api-address")
    superexec.time = SimpleNamespace(sleep=lambda seconds: bell.wait(SELDOM, seconds))
