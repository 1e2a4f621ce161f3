"""Divide examples into those to train, to validate and to test on."""

from .groups import numbered
from .held_out import Rows, Units, held_out_fifth, held_out_groups, held_out_units, split_at_random, units_of

__all__ = [
    "Rows",
    "Units",
    "held_out_fifth",
    "held_out_groups",
    "held_out_units",
    "numbered",
    "split_at_random",
    "units_of",
]
