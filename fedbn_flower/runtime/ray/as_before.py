"""Keep what is the program's while Ray installs its own: SIGTERM's handler, and what `breakpoint` calls."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def sigterm_handled_as_before() -> Iterator[None]:
    """Ray puts a handler of its own, which exits, in the place of a program's; while it starts, that is met
    as the KeyboardInterrupt of a Ctrl-C."""
    handler = signal.getsignal(signal.SIGTERM)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        yield
    except SystemExit as error:
        raise KeyboardInterrupt from error
    finally:
        signal.signal(signal.SIGTERM, handler)


@contextmanager
def breakpoints_as_before() -> Iterator[None]:
    """Ray names a debugger of its own, which this process and those it starts would stop in."""
    name = "PYTHONBREAKPOINT"
    before = os.environ.get(name)
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before
