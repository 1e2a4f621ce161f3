"""Clients in lockstep: a cohort trains at once, its models stacked into one.

For small models most of a step is the cost of calling into PyTorch, which is then paid once for the cohort.
It is done only with models that are known to be served, and only after a trial; everything else trains alone.
"""

from .equivalence import why_alone
from .support import why_unknown
from .train import fit_in_lockstep

__all__ = ["fit_in_lockstep", "why_alone", "why_unknown"]
