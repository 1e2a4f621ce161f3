"""Loaded by the processes of a federation, in which Flower's programs spend most of their time in waiting.

What has died is missed after 20 seconds, not after 60. With FEDBN_TEST_FORKS the processes that answer
messages are forked.
"""

import os
import sys
import time
from pathlib import Path
from types import ModuleType

PROGRAM = Path(sys.orig_argv[1]).name if len(sys.orig_argv) > 1 else ""
LEFT_OUT = {
    "fastapi": {},
    "flwr.supercore.error.http": {"BearerAuthenticationError": None, "http_error_translator": None},
    "flwr.superlink.cli.flower_superlink": {"flower_superlink": None},
    "flwr.superlink.grid.inmemory_grid": {"InMemoryGrid": None},
    "flwr.supernode.cli.flower_supernode": {"flower_supernode": None},
}
"""What all of Flower's programs import, half of their start, and only SuperLink and SuperNode use."""


def leave_out():
    from starlette import status

    for name, used in (LEFT_OUT | {"fastapi": {"status": status}}).items():
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__dict__.update(used)


def wait_less(sleep=time.sleep):
    """A SuperNode looks for messages twice a second, not every three seconds, and for answers five times."""
    from flwr.common import constant

    constant.HEARTBEAT_DEFAULT_INTERVAL = constant.HEARTBEAT_MIN_INTERVAL
    shorter = {3: 0.5} | ({0.5: 0.2} if PROGRAM == "flower-supernode" else {})
    time.sleep = lambda seconds: sleep(shorter.get(seconds, seconds))


if PROGRAM in {"flwr", "flwr-clientapp", "flwr-serverapp", "flower-superexec"}:
    leave_out()
if PROGRAM.startswith(("flwr", "flower-")):
    wait_less()
if PROGRAM == "flower-superlink":  # its own SuperExec only starts runs, and each look takes it 10 ms
    os.environ["FLWR_SUPEREXEC_TASK_POLL_INTERVAL"] = "0.5"
if PROGRAM == "flower-superexec" and "FEDBN_TEST_FORKS" in os.environ:
    import forks  # noqa: F401
