"""Which lines of Flower's log are shown, and how."""

import logging
import os

from .private import console_handlers

LOGGER = logging.getLogger("flwr")


def show_log(verbose: bool) -> None:
    """Show every line, or only warnings; without colours in files."""
    LOGGER.setLevel(logging.INFO if verbose else logging.WARNING)
    colour_in_terminals_only()


def colour_in_terminals_only() -> None:
    """Write colour codes to terminals only, and not if ``NO_COLOR`` is set."""
    for handler in console_handlers(LOGGER):
        handler.colored = handler.stream.isatty() and not os.environ.get("NO_COLOR")
