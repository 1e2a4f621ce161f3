"""The command ``run_sim.py`` or ``fedbn-sim``. Slow imports are made only when they are needed."""

import gc
import os
import platform
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pkgutil import resolve_name

from .. import annexes
from ..core.errors import UserError
from ..core.ground.collector import no_collection
from ..core.text import hint
from ..core.version import __version__

COMMANDS = {"ledger": "ledger", "report": "report_commands"}
"""What may stand in the place of flags, each with the module of its function; annexes bring others."""
CLOSED, USER_ERROR, INTERRUPTED = 1, 2, 130  # exit status
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, ``kill`` and a closed terminal."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default this process's, and return the exit status."""
    if arguments is not None:
        return _main(arguments, is_process=False)
    for number in STOPPING:
        if signal.getsignal(number) != signal.SIG_IGN:  # as SIGHUP is under nohup
            signal.signal(number, _interrupt)
    with _until_nobody_reads():
        return _main(sys.argv[1:], is_process=True)


@contextmanager
def _until_nobody_reads() -> Iterator[None]:
    """End quietly if what reads the output has ended, as ``head`` does: see Python's `signal`, on SIGPIPE."""
    try:
        try:
            yield
        finally:
            if sys.stdout:
                sys.stdout.flush()
    except BrokenPipeError:
        reader = select.poll()
        reader.register(sys.stdout)
        if not any(event & (select.POLLERR | select.POLLHUP) for _, event in reader.poll(0)):
            raise  # it was another pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it once more
        sys.exit(CLOSED)


def _main(arguments: Sequence[str], is_process: bool) -> int:
    try:
        if "--version" in arguments:
            print(_versions())
            return 0
        if any(argument.partition("=")[0] == "--list" for argument in arguments):
            from .listing import show

            show(arguments)
            return 0
        if arguments and not arguments[0].startswith("-"):
            return _run_command(*arguments)
        with no_collection():
            from .parser import parse_command_line

            job = parse_command_line(arguments)
            from .jobs import run
        return run(job, is_process)
    except (UserError, ImportError) as error:
        told = str(error)
        if isinstance(error, ImportError):
            if (package := (error.name or "").partition(".")[0]) not in ("flwr", "torch"):
                raise
            told = f"{package}: {error}; pip install fedbn-flower=={__version__} installs one that fits"
        print(f"error: {told}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt as interrupt:
        for number in STOPPING if is_process else ():
            signal.signal(number, signal.SIG_IGN)
        print(str(interrupt) or "interrupted before the first round", file=sys.stderr)
        return INTERRUPTED
    finally:
        if is_process:
            gc.freeze()  # at its end Python looks for garbage in all that is left, PyTorch's objects included


def _run_command(name: str, *arguments: str) -> int:
    """Call a command's function, which takes what follows its name and returns the exit status."""
    known = [*COMMANDS, *annexes.names_of("commands")]
    if name not in known:
        raise UserError(f"{name}: unknown command{hint(name, known)}; see --help")
    if name in COMMANDS:
        run_command = resolve_name(f"{__package__}.{COMMANDS[name]}:{name}")
    else:
        run_command = annexes.load("commands", name)
    return int(run_command(arguments))


def _interrupt(number: int, frame: object) -> None:
    """Raise KeyboardInterrupt, as Ctrl-C does.

    A further signal is ignored while the program ends, unless the first was lost, as in a destructor.
    """
    handled = sys.exception()
    while handled and not isinstance(handled, KeyboardInterrupt):
        handled = handled.__context__
    if not handled:
        raise KeyboardInterrupt


def _versions() -> str:
    """Return the versions of this program and of the packages that determine its results."""
    others = ", ".join(f"{name} {version(name)}" for name in ("flwr", "torch"))
    return f"fedbn-flower {__version__} (Python {platform.python_version()}, {others})"
