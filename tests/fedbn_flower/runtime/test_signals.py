"""What waits for a Ctrl-C, and for what a Ctrl-C waits."""

import signal
import subprocess
import sys

import pytest

from fedbn_flower.runtime.signals import stopping_later

PROGRAM = """
import os, signal, threading, time
from fedbn_flower.runtime.signals import stopping_later

threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
try:
    with stopping_later():
        print("within", flush=True)
        input()
        print("not disturbed", flush=True)
    print("not reached", flush=True)
except KeyboardInterrupt:
    print("after it", flush=True)
"""


def test_a_ctrl_c_waits_though_another_thread_lets_it_through():
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "within\n"
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate("\n", timeout=60)
    assert output.splitlines() == ["not disturbed", "after it"]


def test_what_was_handled_before_is_again():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(ZeroDivisionError), stopping_later():
        raise ZeroDivisionError
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


IGNORED = """
import os, signal, time
from fedbn_flower.runtime.signals import stop_once

class Closing:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)

stop_once()
try:
    Closing()
    time.sleep(60)
    print("lost")
except KeyboardInterrupt:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.2)
    print("stopped once")
"""


def test_a_ctrl_c_within_a_finalizer_is_not_lost():
    done = subprocess.run([sys.executable, "-c", IGNORED], capture_output=True, text=True, timeout=50)
    assert (done.stdout, done.stderr) == ("stopped once\n", "")


FORKING = """
import os, signal, sys
from fedbn_flower.runtime.signals import forked_children_end_by_sigterm

def stop(*_):
    raise SystemExit(3)

def own(*_):
    os._exit(5)

signal.signal(signal.SIGTERM, stop)
forked_children_end_by_sigterm()
for handler in (stop, own):
    signal.signal(signal.SIGTERM, handler)
    if not (child := os.fork()):
        signal.raise_signal(signal.SIGTERM)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(signal.getsignal(signal.SIGTERM) is own, signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


def test_forked_children_end_by_sigterm_unless_the_program_has_set_a_handler():
    """-15 is the signal's own end; a handler that was set later, as by the program, stays."""
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-15", "5", "True set()"]
