"""When Ctrl-C and SIGTERM end a process, those that it starts, and those that it forks."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

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


@cache
def forked_children_end_by_sigterm() -> None:
    """Have processes that this one forks end at a SIGTERM, also if this one has a handler for it, as now.

    A handler in Python runs between two instructions. A child that begins to wait for a lock just then never
    gets to the next one, and `multiprocessing.Pool`, which ends its children so, waits for it for ever.
    A handler that is set later is the program's own, and stays.
    """
    handler = signal.getsignal(signal.SIGTERM)
    masks = threading.local()

    def before() -> None:  # a SIGTERM to the child waits until it has the handler
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    def after() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def after_in_child() -> None:
        if callable(handler) and signal.getsignal(signal.SIGTERM) is handler:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        after()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=after_in_child)
