"""What a class overrides."""

import pytest

from fedbn_flower.core.ground.settings import overridden


class Base:
    def plain(self):
        return 0

    @staticmethod
    def static():
        return 0

    @classmethod
    def of_class(cls):
        return 0

    @property
    def worked_out(self):
        return 0


class Same(Base):
    """Adds, and changes nothing."""

    def further(self):
        return 1


class Plain(Base):
    def plain(self):
        return 1


class Below(Plain):
    """Overrides by what it inherits."""


class Mixin:
    @staticmethod
    def static():
        return 1

    @property
    def worked_out(self):
        return 1


class Mixed(Mixin, Base):
    """Overrides by a class that knows nothing of the base."""


@pytest.mark.parametrize(
    ("cls", "found"),
    [
        (Base, []), (Same, []), (Plain, ["plain"]), (Below, ["plain"]), (Mixed, ["static", "worked_out"]),
    ],
)  # fmt: skip
def test_what_a_class_overrides(cls, found):
    assert overridden(cls, Base, ["plain", "static", "worked_out"]) == found
