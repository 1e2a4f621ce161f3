"""Keep what is the program's while Ray installs its own: SIGTERM's handler, and what `breakpoint` calls."""

import os
import signal
import sys
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


STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stopping_later() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait; processes that are started within wait with theirs, until `stop_once`.

    A mask is a thread's: other threads let signals through to this one's handlers, which so wait too.
    """
    came: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        found = ((number, signal.getsignal(number)) for number in STOPPING)
        handlers = {number: handler for number, handler in found if handler is not None}  # set in Python
        for number in handlers:
            signal.signal(number, lambda number, frame: came.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for late in dict.fromkeys(came):
            signal.raise_signal(late)  # it comes when the mask goes
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


RAISED_AGAIN = 0.01  # seconds after an exception that Python ignored


def stop_once() -> None:
    """From now on the first Ctrl-C, SIGTERM or SIGHUP is a KeyboardInterrupt, and no other disturbs what it
    ends; those that are ignored, as SIGHUP under nohup, still are.

    Python ignores an exception within a finalizer or a weak reference's callback: it then comes once more.
    """

    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            raise KeyboardInterrupt

    report = sys.unraisablehook

    def raise_again(ignored: "sys.UnraisableHookArgs") -> None:
        nonlocal stopped
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            report(ignored)
            return
        stopped = False
        signal.setitimer(signal.ITIMER_REAL, RAISED_AGAIN)

    sys.unraisablehook = raise_again
    signal.signal(signal.SIGALRM, stop)
    for number in STOPPING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
