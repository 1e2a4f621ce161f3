"""Which cases of a test that repeats whole runs are among the quick ones."""

from collections.abc import Container, Sequence

import pytest


def some_quick(cases: Sequence, quick: Container[int]) -> list:
    """The cases for ``parametrize``: but for those at the places ``quick`` they are slow."""
    several = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [
        pytest.param(*case, marks=[] if place in quick else [pytest.mark.slow])
        for place, case in enumerate(several)
    ]
