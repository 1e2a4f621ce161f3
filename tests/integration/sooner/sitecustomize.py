"""Loaded by the processes of a federation, in which Flower's programs spend most of their time in waiting.

A SuperNode looks for messages when it hears that there are some (`bells`), or else twice a second, not every
three seconds, and for answers five times. What is not there yet is asked for again after a tenth of a second,
not after one. What has died is missed after 30 seconds, not after 60, but with FEDBN_TEST_PATIENT: three
heartbeats, not two, since a busy machine delays some. A SuperLink looks for who is missing once a second, not
with every request. None imports what it never uses (`imports`). With FEDBN_TEST_FORKS the processes that
answer messages are forked, with FEDBN_TEST_FORGETS a SuperLink keeps in memory what it has. Of other programs
it makes PyTorch and Ray start sooner.
"""

import os
import signal
import sys
import time
from pathlib import Path
from types import ModuleType

WORDS = [word for word in sys.orig_argv[1:] if word != "-u"]
PROGRAM = Path(WORDS[0]).name if WORDS else ""
RINGS = "FEDBN_TEST_BELLS" in os.environ


def wait_less(sleep=time.sleep):
    from flwr.common import constant
    from flwr.supercore import constant as constant_of_objects

    if "FEDBN_TEST_PATIENT" not in os.environ:
        constant.HEARTBEAT_DEFAULT_INTERVAL = constant.HEARTBEAT_MIN_INTERVAL
        constant.HEARTBEAT_PATIENCE = 3
    constant_of_objects.PULL_INITIAL_BACKOFF = 0.1
    shorter = {3: 0.5} | ({0.5: 0.2} if PROGRAM == "flower-supernode" else {})
    time.sleep = lambda seconds: sleep(shorter.get(seconds, seconds))


def look_seldom():
    from flwr.supercore.corestate.sql_corestate import SqlCoreState

    look, last = SqlCoreState._cleanup_expired_task_tokens, [0.0]

    def looked(self):
        if time.monotonic() - last[0] >= 1:
            last[0] = time.monotonic()
            look(self)

    SqlCoreState._cleanup_expired_task_tokens = looked


if PROGRAM in ("monitor.py", "log_monitor.py"):  # Ray's, of clusters that grow, and of logs that nobody reads
    signal.pause()
sys.modules["torch._meta_registrations"] = ModuleType("of tensors without data")  # a quarter of its import
if PROGRAM.startswith(("flwr", "flower-")):
    import imports

    imports.import_less(PROGRAM)
    wait_less()
if PROGRAM == "flower-superlink":  # its own SuperExec only starts runs, and each look takes it 10 ms
    os.environ["FLWR_SUPEREXEC_TASK_POLL_INTERVAL"] = "0.5"
    if "FEDBN_TEST_FORGETS" in os.environ:
        sys.argv[sys.argv.index("--database") + 1] = ":flwr-in-memory:"
    else:
        look_seldom()
if PROGRAM == "flower-superexec" and "FEDBN_TEST_FORKS" in os.environ:
    import forks  # noqa: F401
if RINGS and PROGRAM == "flower-superlink":
    import bells

    bells.Bell("--port").ring()
if RINGS and PROGRAM == "flower-superexec":
    import bells
    from flwr.supercore.superexec import run_superexec

    bells.waits_for_tasks(run_superexec)
if RINGS and PROGRAM == "flwr-serverapp":
    import bells
    from flwr.superlink.grid.http_grid import HttpGrid

    bells.rings_for_supernodes(HttpGrid)
    bells.listens_for_answers(HttpGrid)
if RINGS and PROGRAM == "flower-supernode":
    import bells
    from flwr.supernode import start_client_internal

    bells.rings_for_its_superexec(start_client_internal)
    messages, sleep = bells.Bell("--superlink"), time.sleep
    time.sleep = lambda seconds: messages.wait(3, 0.5) if seconds == 3 else sleep(seconds)
