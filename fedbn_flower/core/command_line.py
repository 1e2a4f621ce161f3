"""Commands as a person types them."""

import shlex
import sys
from collections.abc import Iterable
from pathlib import Path


def command(arguments: Iterable[str]) -> str:
    """This program with other arguments: ``python run_sim.py ...``, or ``fedbn-sim ...``."""
    own = sys.argv[0]
    program = ["python", own] if own.endswith(".py") else [Path(own).name]
    return shlex.join([*program, *arguments])
