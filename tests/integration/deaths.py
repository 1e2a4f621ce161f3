"""What the command line leaves where it dies at a change of a file.

Of a process that dies nothing but its files is left: copies of them show deaths of a process that lives on.
"""

import os
import re
import shutil
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedbn_flower import cli
from fedbn_flower.core.files import CsvLog


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


def first_and_last(changes):
    """Where each kind of change is made first and last, one client's memory like another's."""
    places = {}
    for place, change in enumerate(changes):
        places.setdefault(re.sub(r"client-.*", "client", change), []).append(place)
    return sorted({place for found in places.values() for place in (found[0], found[-1])})
