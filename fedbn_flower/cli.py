"""The command ``run_sim.py``, or ``fedbn-sim``. What takes seconds to import is imported when it is used."""

import platform
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version

from . import __version__
from .errors import UserError
from .listing import lines

COMMANDS = ("report", "compare")
MISTAKE, INTERRUPTED = 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default this process's own; its exit status."""
    if arguments is None:
        arguments = sys.argv[1:]
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill is a Ctrl-C
        if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # so is a closed terminal, but under nohup
            signal.signal(signal.SIGHUP, signal.default_int_handler)
    try:
        if "--version" in arguments:
            print(_versions())
            return 0
        if "--list" in arguments:
            print(*lines(), sep="\n")
            return 0
        if arguments and arguments[0] in COMMANDS:
            from . import looking

            return int(getattr(looking, arguments[0])(arguments[1:]))
        from .arguments import asked

        job = asked(arguments)
        from .jobs import run

        return run(job)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return MISTAKE
    except KeyboardInterrupt as interrupt:
        print(str(interrupt) or "interrupted before the first round", file=sys.stderr)
        return INTERRUPTED


def _versions() -> str:
    """This program's version, and those of what decides its results."""
    others = ", ".join(f"{name} {version(name)}" for name in ("flwr", "torch"))
    return f"fedbn-flower {__version__} (Python {platform.python_version()}, {others})"
