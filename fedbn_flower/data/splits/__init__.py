"""Divide examples into those to train, to validate and to test on."""

from .held_out import Rows, held_out_fifth, held_out_groups, held_out_units, numbered, split_at_random

__all__ = [
    "Rows",
    "held_out_fifth",
    "held_out_groups",
    "held_out_units",
    "numbered",
    "split_at_random",
]
