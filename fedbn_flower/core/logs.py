"""Which lines of Flower's log are shown, and how."""

import logging
import os

from .errors import UserError
from .private import console_handlers

LOGGER = logging.getLogger("flwr")


def show_log(verbose: bool) -> None:
    """Show every line, or only warnings; without colours in files."""
    LOGGER.setLevel(logging.INFO if verbose else logging.WARNING)
    colour_in_terminals_only()


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
