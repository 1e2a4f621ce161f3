"""Lockstep training: a cohort of clients trains at once, their models stacked into one.

For small models, most of a step is the overhead of calling PyTorch, which the cohort then pays once. It is
used only for supported models that pass a trial. All other clients train one at a time.
"""

from .equivalence import BROKEN, reason_not_equivalent, reason_of_batches
from .support import reason_not_supported
from .train import fit_in_lockstep

__all__ = ["BROKEN", "fit_in_lockstep", "reason_not_equivalent", "reason_not_supported", "reason_of_batches"]
