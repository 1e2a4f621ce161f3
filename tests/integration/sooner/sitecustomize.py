"""Loaded by Flower's processes of the tests, which spend most of their time in waiting.

A SuperNode looks for messages every half second, not every three; what has died is missed after 20 seconds,
not after 60.
"""

import time

from flwr.common import constant

constant.HEARTBEAT_DEFAULT_INTERVAL = constant.HEARTBEAT_MIN_INTERVAL
sleep = time.sleep
time.sleep = lambda seconds: sleep(0.5 if seconds == 3 else seconds)
