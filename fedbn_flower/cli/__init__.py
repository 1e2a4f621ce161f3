"""The command line: ``run_sim.py``, or ``fedbn-sim``."""

from .command import main

__all__ = ["main"]
