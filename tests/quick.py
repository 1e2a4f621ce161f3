"""Which cases of a test that repeats whole runs are among the quick ones."""

from collections.abc import Container, Sequence
from itertools import product

import pytest


def some_quick(cases: Sequence, quick: Container[int]) -> list:
    """The cases for ``parametrize``: but for those at the places ``quick`` they are exhaustive."""
    several = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [
        pytest.param(*case, marks=[] if place in quick else [pytest.mark.exhaustive])
        for place, case in enumerate(several)
    ]


def diagonal_quick(*axes: Sequence) -> list:
    """The combinations for ``parametrize``: all but a few with every value of each axis are exhaustive."""
    diagonal = {tuple(i % len(axis) for axis in axes) for i in range(max(map(len, axes)))}
    places = list(product(*(range(len(axis)) for axis in axes)))
    cases = [tuple(axis[i] for axis, i in zip(axes, place, strict=True)) for place in places]
    return some_quick(cases, {i for i, place in enumerate(places) if place in diagonal})
