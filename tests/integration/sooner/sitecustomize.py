"""Loaded by the processes of a federation, in which Flower's programs spend most of their time in waiting.

A SuperNode looks for messages and answers five times a second, not every three seconds and twice a second.
What has died is missed after 20 seconds, not after 60. With FEDBN_TEST_FORKS the processes that answer
messages are forked.
"""

import os
import sys
import time
from pathlib import Path

PROGRAM = Path(sys.orig_argv[1]).name if len(sys.orig_argv) > 1 else ""

if PROGRAM.startswith(("flwr", "flower-")):
    from flwr.common import constant

    constant.HEARTBEAT_DEFAULT_INTERVAL = constant.HEARTBEAT_MIN_INTERVAL
    sleep = time.sleep
    time.sleep = lambda seconds: sleep(0.2 if seconds in {0.5, 3} else seconds)
if PROGRAM == "flower-superexec" and "FEDBN_TEST_FORKS" in os.environ:
    import forks  # noqa: F401
