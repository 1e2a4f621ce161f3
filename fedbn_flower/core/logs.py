"""Which lines of Flower's log are shown, and how."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import UserError
from .private import console_handlers

LOGGER = logging.getLogger("flwr")
NOTICE = "is_notice"
"""What a line of the log has that is a `notice`."""


def show_log(verbose: bool) -> None:
    """Show every line, or only warnings; without colours in files."""
    LOGGER.setLevel(logging.INFO if verbose else logging.WARNING)
    colour_in_terminals_only()


def notice(text: str) -> None:
    """Warn of something before the first round of a run."""
    LOGGER.warning("%s", text, extra={NOTICE: True})


@contextmanager
def notices_once() -> Iterator[None]:
    """Until the context ends, show a notice that several runs of a job have once."""
    told: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        if not hasattr(record, NOTICE):
            return True
        before = len(told)
        told.add(record.getMessage())
        return len(told) > before

    LOGGER.addFilter(is_new)
    try:
        yield
    finally:
        LOGGER.removeFilter(is_new)


def one_line_for_mistakes() -> None:
    """Have Flower log a `UserError` that an app raises as one line, in place of its traceback."""
    LOGGER.addFilter(_in_one_line)


def _in_one_line(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, UserError):
        record.msg, record.args, record.exc_info = f"{record.getMessage()}: {error}", (), None
    return True


def colour_in_terminals_only() -> None:
    """Write colour codes to terminals only, and not if ``NO_COLOR`` is set."""
    for handler in console_handlers(LOGGER):
        handler.colored = handler.stream.isatty() and not os.environ.get("NO_COLOR")
