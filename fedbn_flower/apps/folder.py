"""The folder of an app's run."""

import logging
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

from ..core.errors import os_errors_as_user_errors
from ..core.files import csv_text, json_text, write_atomically
from ..core.stored import APP, CONFIG, KIND
from ..core.version import __version__
from ..records.array_file import array_file, writable
from ..records.summary import SUMMARY_FILE, Summary
from ..runtime.collected_output import logs_to
from .results import EVALUATE, LOSS, SERVER, TRAIN, Results
from .rounds import Line, Rounds

LOGGER, FLOWER = logging.getLogger("flwr.fedbn"), logging.getLogger("flwr")

LOG, METRICS, ARRAYS = "log.txt", "metrics.csv", "model.safetensors"


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """Write what is run, and with which versions.

    Raises
    ------
    UserError
        When it cannot be written.
    """
    versions = {"fedbn-flower": __version__, "python": platform.python_version(), "flwr": version("flwr")}
    with os_errors_as_user_errors("run-dir", f"write to {str(folder)!r}"):
        write_atomically(folder / CONFIG, json_text({KIND: APP, **config, "versions": versions}, indent=2))


def write_results(folder: Path, results: Results) -> None:
    """Write the table of rounds and the arrays, as far as there are some."""
    write_metrics(folder, results)
    if arrays := writable(ARRAYS, results.arrays()):
        write_atomically(folder / ARRAYS, array_file(ARRAYS, arrays))


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns of a table of rounds: those of training first, the server's last."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    sides = (TRAIN, EVALUATE, SERVER)
    return sorted(names, key=lambda name: [name.startswith(side) for side in reversed(sides)])


def write_summary(folder: Path, results: Results, rounds: Rounds, seconds: float) -> None:
    """Write what a run that has ended came to: of each side the last numbers.

    Runs are compared by the accuracy, if it is measured, else the loss, else by what comes first.
    """
    clients, server = results.latest(EVALUATE), results.latest(SERVER)
    names = [*clients, *server]
    found = {
        "rounds": rounds.total,
        "seconds": seconds,
        **({"seconds-per-round": seconds / rounds.total} if rounds.total else {}),
        **({"aggregated": clients} if clients else {}),
        **({"global": server} if server else {}),
        "compared-by": next((name for name in ("accuracy", LOSS, *names) if name in names), ""),
        "failures": rounds.failures,
    }
    summary = Summary.model_validate(found)
    write_atomically(folder / SUMMARY_FILE, json_text(summary.as_json(), indent=2) + "\n")


def write_metrics(folder: Path, results: Results) -> None:
    """Write a row for each round so far."""
    if rows := results.rows():
        write_atomically(folder / METRICS, csv_text(columns_of(rows), rows))


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class _Both:
    """Writes to a stream of this process, above the line of progress, and to a file, without colours."""

    def __init__(self, stream: TextIO, file: TextIO, line: Line) -> None:
        self._stream = stream
        self._file = file
        self._line = line

    def write(self, text: str) -> int:
        """Write to both."""
        self._line.clear()
        if not self._file.closed:  # a handler that the app has made may keep this stream
            self._file.write(COLOUR.sub("", text))
        return self._stream.write(text)

    def flush(self) -> None:
        """Flush both."""
        if not self._file.closed:
            self._file.flush()
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def logged(folder: Path, line: Line) -> Iterator[TextIO]:
    """Write what this process prints and logs to the folder's log too; yield that file."""
    out, err = sys.stdout, sys.stderr
    with (folder / LOG).open("w", buffering=1, encoding="utf-8", errors="replace") as file:
        both: Any = _Both(err, file, line)
        printed: Any = _Both(out, file, line)
        with redirect_stdout(printed), redirect_stderr(both), logs_to(both, of=(out, err)):
            level = FLOWER.level
            FLOWER.setLevel(min(level, logging.INFO))  # as an app's log has it under Flower
            try:
                yield file
            finally:
                FLOWER.setLevel(level)
                line.clear()
