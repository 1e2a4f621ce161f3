"""Settings: what a class declares, and what takes the place of a setting."""

import functools

from clients import OBJECTIVES
from fedbn_flower.core.ground.settings import declared, flag, set_values, setting, values


class Declares:
    """A setting of every form."""

    plain: float = setting(0.1, gt=0, alias="another-word", description="rate")
    whole: int = setting(3, ge=1, description="number")
    needed: str = setting(description="without a default")
    _between_: bool = setting(True, description="kept out of the way of subclasses")
    _private: int = setting(7, description="begins with an underscore")
    by_property: float = setting(1.0)
    by_settable_property: float = setting(1.0)
    by_cached_property: float = setting(1.0)
    by_method: float = setting(1.0)
    by_static_method: float = setting(1.0)
    by_class_method: float = setting(1.0)
    taken_back: float = setting(1.0)
    constant = 5


class Overrides(Declares):
    """Changes defaults, and puts something else in a setting's place."""

    plain = 0.5
    needed = "given"
    constant = 6

    def __init__(self):
        self._set = 2.0

    @property
    def by_property(self):
        return 2.0

    @property
    def by_settable_property(self):
        return self._set

    @by_settable_property.setter
    def by_settable_property(self, value):
        self._set = value

    @functools.cached_property
    def by_cached_property(self):
        return 2.0

    def by_method(self):
        return 2.0

    @staticmethod
    def by_static_method():
        return 2.0

    @classmethod
    def by_class_method(cls):
        return 2.0

    def taken_back(self):
        return 2.0


class Again(Overrides):
    """Declares anew what the class between had taken back."""

    taken_back: int = setting(4, description="again a setting")


def test_what_takes_the_place_of_a_setting_ends_it():
    found = declared(Overrides)
    assert list(found) == ["plain", "whole", "needed", "_between_", "_private", "by_settable_property"]
    assert (found["plain"].default, found["needed"].default) == (0.5, "given")
    assert [flag(name, field) for name, field in found.items()] == [
        "another-word", "whole", "needed", "between", "private", "by-settable-property"
    ]  # fmt: skip
    assert declared(Again)["taken_back"].default == 4


def test_an_objective_may_work_out_what_another_is_given():
    """A property in the place of a setting was once taken for its default, and could not be set."""

    class Fading(OBJECTIVES["fedprox"]):
        @property
        def mu(self):
            return 0.25

    assert Fading({}, values(Fading, {"mu": 3.0})).mu == 0.25
    target = Overrides()
    set_values(target, {"by_settable_property": 3.0})
    assert (target.by_settable_property, target.by_property, target.plain) == (3.0, 2.0, 0.5)
