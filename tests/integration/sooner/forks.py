"""Has a SuperNode fork what answers a message, which otherwise imports Flower each time: a second of CPU."""

import ctypes
import multiprocessing
import shutil
import subprocess
import sys
from types import SimpleNamespace

from flwr.supercore.exit import exit_handler
from flwr.supercore.superexec.executor import subprocess_executor

FORK = multiprocessing.get_context("fork")
CLIENT_PROCESS = "flwr-clientapp"
PR_SET_DUMPABLE = 4


def answer(arguments):
    """Be the process that the arguments would start."""
    from flwr.supernode.cli import flwr_clientapp

    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1)  # a SuperExec is not, and tests read environments
    exit_handler.registered_exit_handlers.clear()
    sys.argv = [shutil.which(arguments[0]), *arguments[1:]]
    flwr_clientapp()


def start(arguments, **options):
    if arguments[0] != CLIENT_PROCESS:
        return subprocess.Popen(arguments, **options)
    import flwr.supernode.cli  # noqa: F401  once for all

    process = FORK.Process(target=answer, args=(arguments,), daemon=True)
    process.start()
    return process


subprocess_executor.subprocess = SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL)
