"""Loaded by Flower's processes of the tests, which spend most of their time in waiting and in imports.

A SuperNode looks for messages every half second, not every three; what has died is missed after 20 seconds,
not 60. The process of a message, and what starts it, import themselves, and no other program of Flower's.
"""

import sys
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

import flwr
from flwr.common import constant

constant.HEARTBEAT_DEFAULT_INTERVAL = constant.HEARTBEAT_MIN_INTERVAL
sleep = time.sleep
time.sleep = lambda seconds: sleep(0.5 if seconds == 3 else seconds)


def program(programs, name):
    """The function in the module of its name, which takes the module's place in the package."""
    if not name.startswith("fl"):
        raise AttributeError(name)
    setattr(programs, name, getattr(import_module(f"{programs.__name__}.{name}"), name))
    return getattr(programs, name)


for place in ("supernode", "supercore"):
    programs = ModuleType(f"flwr.{place}.cli")
    programs.__path__ = [str(Path(flwr.__file__).parent / place / "cli")]
    programs.__getattr__ = partial(program, programs)
    sys.modules[programs.__name__] = programs
