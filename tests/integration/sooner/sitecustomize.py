"""Loaded by Flower's processes of the tests, which spend most of their time in waiting.

A SuperNode looks for messages and answers five times a second, not every three seconds and twice a second.
What has died is missed after 20 seconds, not after 60. With FEDBN_TEST_FORKS the processes that answer
messages are forked.
"""

import os
import sys
import time

from flwr.common import constant

constant.HEARTBEAT_DEFAULT_INTERVAL = constant.HEARTBEAT_MIN_INTERVAL
sleep = time.sleep
time.sleep = lambda seconds: sleep(0.2 if seconds in {0.5, 3} else seconds)
if "FEDBN_TEST_FORKS" in os.environ and any(word.endswith("flower-superexec") for word in sys.orig_argv[:2]):
    import forks  # noqa: F401
