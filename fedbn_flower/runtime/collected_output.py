"""What a process prints and logs, where others are to see it."""

import io
import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

from ..core.private import console_handlers


@contextmanager
def collected_output() -> Iterator[io.StringIO]:
    """Collect what this process prints and logs until the context ends."""
    text = io.StringIO()
    of = sys.stdout, sys.stderr
    with redirect_stdout(text), redirect_stderr(text), logs_to(text, of):
        yield text


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
