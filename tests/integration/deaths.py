"""The command line in processes that die (SIGKILL): at a certain change of a file, or when they are told to.

They are forked from a process in which everything is imported, so that none waits for imports.
"""

import json
import multiprocessing
import os
import re
import signal
import sys
from pathlib import Path

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
    from fedbn_flower import cli

    sys.exit(cli.main([str(argument) for argument in arguments]))


def start(*arguments, log):
    process = CONTEXT.Process(target=command, args=(arguments, log))
    process.start()
    return process


def watched(folder, last, arguments, log, output):
    """The command, which ends where it is about to change a file of the folder for the ``last``-th time.

    A change is a file's replacement, its removal, or a row that is added to it. A file lists them.
    """
    changes = []

    def change(kind, path):
        if folder in Path(path).parents:
            if len(changes) == last:
                os.kill(os.getpid(), signal.SIGKILL)
            changes.append(f"{kind} {Path(path).relative_to(folder)}")

    def noted_before(kind, done, place):
        def doing(*given, **named):
            change(kind, place(*given))
            return done(*given, **named)

        return doing

    os.replace = noted_before("replace", os.replace, lambda _, path: path)
    Path.unlink = noted_before("remove", Path.unlink, lambda path: path)
    CsvLog.append = noted_before("append", CsvLog.append, lambda log, _: log.path)
    draw_none()
    try:
        command(arguments, log)
    finally:
        output.write_text(json.dumps(changes))


def changes_of(folder, arguments, log):
    """Every change that the command makes of the folder's files, in order."""
    output = log.with_suffix(".changes")
    process = CONTEXT.Process(target=watched, args=(folder, None, arguments, log, output))
    process.start()
    process.join()
    assert process.exitcode == 0, log.read_text()
    return json.loads(output.read_text())


def first_and_last(changes):
    """Where each kind of change is made first and last, one client's memory like another's."""
    places = {}
    for place, change in enumerate(changes):
        places.setdefault(re.sub(r"client-.*", "client", change), []).append(place)
    return sorted({place for found in places.values() for place in (found[0], found[-1])})


def die(folder, last, arguments, log):
    """Run the command up to one of its changes."""
    process = CONTEXT.Process(
        target=watched, args=(folder, last, arguments, log, log.with_suffix(".changes"))
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL, log.read_text()
