"""What is learnt, one file each."""

from .base import Problem
from .characters import NextCharacter
from .classification import Classification
from .least_squares import LeastSquares
from .regression import Regression

__all__ = ["Classification", "LeastSquares", "NextCharacter", "Problem", "Regression"]
