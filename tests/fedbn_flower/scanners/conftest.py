"""What tests of simulated scanners read with, as those of other data."""

from ..data.conftest import digits, run

__all__ = ["digits", "run"]
