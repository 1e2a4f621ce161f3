"""What is learnt, one file each."""

from .base import Problem
from .classification import Classification
from .regression import Regression

__all__ = ["Classification", "Problem", "Regression"]
