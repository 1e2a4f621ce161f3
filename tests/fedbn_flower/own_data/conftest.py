"""What tests of data in Python read with, as those of other data."""

from ..data.conftest import digits, run

__all__ = ["digits", "run"]
