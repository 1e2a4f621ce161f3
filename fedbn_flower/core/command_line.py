"""The command lines that messages suggest."""

import shlex
import sys
from collections.abc import Iterable
from pathlib import Path


def command(arguments: Iterable[str]) -> str:
    """Return the command that runs this program with other arguments.

    It begins with ``python run_sim.py`` or ``fedbn-sim``, whichever was started.
    """
    script = sys.argv[0]
    program = ["python", script] if script.endswith(".py") else [Path(script).name]
    return shlex.join([*program, *arguments])
