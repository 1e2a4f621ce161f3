"""The command ``run_sim.py``, or ``fedbn-sim``. What takes seconds to import is imported when it is used."""

import platform
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version

from ..core.errors import UserError
from ..core.version import __version__
from .listing import lines

COMMANDS = ("report", "compare")
MISTAKE, INTERRUPTED = 2, 130
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a polite kill, a closed terminal."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default this process's own; its exit status."""
    own = arguments is None
    if arguments is None:
        arguments = sys.argv[1:]
        for number in STOPPING:
            if signal.getsignal(number) != signal.SIG_IGN:  # as SIGHUP is under nohup
                signal.signal(number, _interrupt)
    try:
        if "--version" in arguments:
            print(_versions())
            return 0
        if "--list" in arguments:
            print(*lines(), sep="\n")
            return 0
        if arguments and arguments[0] in COMMANDS:
            from . import report_commands as looking

            return int(getattr(looking, arguments[0])(arguments[1:]))
        from .parser import asked

        job = asked(arguments)
        from .jobs import run

        return run(job)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return MISTAKE
    except KeyboardInterrupt as interrupt:
        for number in STOPPING if own else ():
            signal.signal(number, signal.SIG_IGN)
        print(str(interrupt) or "interrupted before the first round", file=sys.stderr)
        return INTERRUPTED


def _interrupt(number: int, frame: object) -> None:
    """End what runs, as a Ctrl-C does; another signal does not disturb how it ends, but where the first was
    lost, as in a destructor."""
    handled = sys.exception()
    while handled and not isinstance(handled, KeyboardInterrupt):
        handled = handled.__context__
    if not handled:
        raise KeyboardInterrupt


def _versions() -> str:
    """This program's version, and those of what decides its results."""
    others = ", ".join(f"{name} {version(name)}" for name in ("flwr", "torch"))
    return f"fedbn-flower {__version__} (Python {platform.python_version()}, {others})"
