"""What a process prints and logs, where others are to see it."""

import io
import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

from ..core.private import console_handlers


class Collected(io.TextIOWrapper):
    """What is printed, as a stream that can do what a console's can; kept as long as the process.

    A handler of logs that an app makes while its output is collected has this stream ever after.
    """

    name = "<collected>"

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, "utf-8", "backslashreplace", newline="", write_through=True)

    def fileno(self) -> int:
        """The process's own output: for programs that are started with this stream."""
        return 1

    def taken(self) -> str:
        """Return what was written since the last time."""
        self.flush()
        text = self._bytes.getvalue().decode(self.encoding, "replace")
        self._bytes.seek(0)
        self._bytes.truncate()
        return text


@contextmanager
def collected_output(stream: Collected) -> Iterator[None]:
    """Have a stream collect what this process prints and logs until the context ends."""
    of = sys.stdout, sys.stderr
    with redirect_stdout(stream), redirect_stderr(stream), logs_to(stream, of):
        yield


@contextmanager
def logs_to(stream: TextIO, of: Iterable[TextIO]) -> Iterator[None]:
    """Have Flower's log, and handlers that write to these streams or the process's first, write to another.

    A handler keeps the stream that it was made with, whatever ``sys.stderr`` is later.
    """
    known = logging.Logger.manager.loggerDict.values()
    loggers = [logging.getLogger(), *(one for one in known if isinstance(one, logging.Logger))]
    standard = (*of, sys.__stdout__, sys.__stderr__)
    handlers: list[Any] = [
        handler
        for logger in loggers
        for handler in logger.handlers
        if isinstance(handler, logging.StreamHandler) and handler.stream in standard
    ]
    handlers += [one for one in console_handlers(logging.getLogger("flwr")) if one not in handlers]
    before = [(handler, handler.stream) for handler in handlers]
    for handler in handlers:
        handler.setStream(stream)
    try:
        yield
    finally:
        for handler, stream_before in before:
            handler.setStream(stream_before)
