"""``attack``: some clients lie, so that what helps against them can be measured."""

from .attack import Attack
from .keys import AttackKeys

__all__ = ["Attack", "AttackKeys"]
