"""Simulate federated learning on this machine: ``python run_sim.py --help``.

One run, or a grid of strategies x clients x objectives x seeds where a flag has a comma. Any name in
``--list`` can be swapped for another, or for one of your own: ``--strategy FILE.py:NAME``.
"""

import sys

from fedbn_flower.cli import main

if __name__ == "__main__":
    sys.exit(main())
