"""What of Flower's log is shown, and how."""

import logging
import os

from .private import console_handlers

LOGGER = logging.getLogger("flwr")


def show_log(verbose: bool) -> None:
    """Show all of it, or warnings alone; without colours in a file."""
    LOGGER.setLevel(logging.INFO if verbose else logging.WARNING)
    colour_in_terminals_only()


def colour_in_terminals_only() -> None:
    """Write no colour codes into files and pipes, nor where ``NO_COLOR`` is set."""
    for handler in console_handlers(LOGGER):
        handler.colored = handler.stream.isatty() and not os.environ.get("NO_COLOR")
