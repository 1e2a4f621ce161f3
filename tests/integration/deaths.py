"""The command line in processes that die (SIGKILL), and what it leaves where it dies at a change of a file.

The processes are forked from one in which everything is imported, so that none waits for imports. Of a
process that dies nothing but its files is left: copies of them show deaths, too, of a process that lives on.
"""

import itertools
import multiprocessing
import os
import re
import shutil
import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedbn_flower import cli
from fedbn_flower.core.files import CsvLog

from ..pictures import draw_none

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "torch",
        "fedbn_flower.cli.jobs",
        "fedbn_flower.runtime.simulation",
        "optuna",
        "tests.integration.deaths",
    ]
)


def command(arguments, log):
    """In a process of its own: the command with its output in a file."""
    sys.stdout = sys.stderr = open(log, "a")  # noqa: SIM115
    sys.exit(cli.main([str(argument) for argument in arguments]))


def start(*arguments, log):
    process = CONTEXT.Process(target=command, args=(arguments, log))
    process.start()
    return process


@contextmanager
def before_each_change(folder, doing):
    """Have this called before each change of a file of the folder, with what is changed.

    A change is a file's replacement, its removal, or a row that is added to it. No other is made meanwhile.
    """
    alone = threading.RLock()

    def told(kind, done, place):
        def change(*given, **named):
            path = Path(place(*given))
            with alone:
                if folder in path.parents and (kind != "remove" or path.exists()):
                    doing(f"{kind} {path.relative_to(folder)}")
                return done(*given, **named)

        return change

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", told("replace", os.replace, lambda _, path: path))
        patch.setattr(Path, "unlink", told("remove", Path.unlink, lambda path: path))
        patch.setattr(CsvLog, "append", told("append", CsvLog.append, lambda log, _: log.path))
        yield


def snapshots(folder, arguments, place):
    """Every change that the command makes of the folder's files, in order.

    What a death before each would leave is copied to the folders 0, 1, 2... of a place.
    """
    changes = []

    def copy(change):
        shutil.copytree(folder, place / str(len(changes)))
        changes.append(change)

    with before_each_change(folder, copy):
        assert cli.main([str(argument) for argument in arguments]) == 0
    return changes


def dies(folder, last, arguments, log):
    """The command, killed where it is about to change a file of the folder for the ``last``-th time."""
    changes = itertools.count()

    def die_at_last(_):
        if next(changes) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    draw_none()
    with before_each_change(folder, die_at_last):
        command(arguments, log)


def first_and_last(changes):
    """Where each kind of change is made first and last, one client's memory like another's."""
    places = {}
    for place, change in enumerate(changes):
        places.setdefault(re.sub(r"client-.*", "client", change), []).append(place)
    return sorted({place for found in places.values() for place in (found[0], found[-1])})


def die(folder, last, arguments, log):
    """Run the command up to one of its changes."""
    process = CONTEXT.Process(target=dies, args=(folder, last, arguments, log))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL, log.read_text()
