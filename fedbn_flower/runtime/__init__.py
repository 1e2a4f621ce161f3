"""Grids that run the ClientApp in this process or in Ray actors."""

from .grid import LocalGrid
from .inline import InlineGrid

__all__ = ["InlineGrid", "LocalGrid"]
