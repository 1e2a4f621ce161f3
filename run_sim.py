"""Simulate federated learning on this machine: ``python run_sim.py --help``.

One run, or a grid of strategies x clients x objectives x seeds where a flag has a comma. Any name in
``--list`` can be swapped for another, or for one of your own: ``--strategy FILE.py:NAME``.
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from shlex import join

if find_spec("flwr") is None:
    install = join([sys.executable, "-m", "pip", "install", "-e", str(Path(__file__).resolve().parent)])
    lacks = f"{sys.executable} lacks the packages of fedbn-flower"
    print(f"error: {lacks}; run it with .venv/bin/python, or install them: {install}", file=sys.stderr)
    sys.exit(2)

from fedbn_flower.cli import main

if __name__ == "__main__":
    sys.exit(main())
