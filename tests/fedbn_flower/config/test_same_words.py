"""Rules and clients may not import each other: what both spell is the same, settings and keys of messages."""

import functools

import pytest

from clients import CLIENTS, LOSSES, OBJECTIVES, LocalTraining
from clients import settings as of_clients
from clients.objectives import fedproto, fedsat, scaffold
from strategies import STRATEGIES
from strategies import settings as of_rules
from strategies.messages import wire
from tests.clients.helpers import make_client


class Declares:
    """A setting of every form."""

    plain: float = of_rules.setting(0.1, gt=0, alias="another-word", description="rate")
    of_clients: int = of_clients.setting(3, ge=1, description="made by the other package")
    needed: str = of_rules.setting(description="without a default")
    _between_: bool = of_rules.setting(True, description="kept out of the way of subclasses")
    _private: int = of_rules.setting(7, description="begins with an underscore")
    by_property: float = of_rules.setting(1.0)
    by_settable_property: float = of_rules.setting(1.0)
    by_cached_property: float = of_rules.setting(1.0)
    by_method: float = of_rules.setting(1.0)
    by_static_method: float = of_rules.setting(1.0)
    by_class_method: float = of_rules.setting(1.0)
    taken_back: float = of_rules.setting(1.0)
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

    taken_back: int = of_rules.setting(4, description="again a setting")


def read(reader, cls):
    """What a package's reader finds of a class."""
    return {
        attribute: (
            reader.flag(attribute, field), field.is_required(), field.default, field.description,
            str(field.metadata),
        )
        for attribute, field in reader.declared(cls).items()
    }  # fmt: skip


BUILT_IN = [cls for table in (STRATEGIES, CLIENTS, OBJECTIVES, LOSSES) for cls in table.values()]


@pytest.mark.parametrize("cls", [Declares, Overrides, Again, *BUILT_IN], ids=lambda cls: cls.__name__)
def test_both_read_the_same_settings_of_a_class(cls):
    assert read(of_clients, cls) == read(of_rules, cls)
    assert list(of_clients.declared(cls)) == list(of_rules.declared(cls))


def test_what_takes_the_place_of_a_setting_ends_it():
    found = of_rules.declared(Overrides)
    assert list(found) == ["plain", "of_clients", "needed", "_between_", "_private", "by_settable_property"]
    assert (found["plain"].default, found["needed"].default) == (0.5, "given")
    assert [of_rules.flag(name, field) for name, field in found.items()] == [
        "another-word", "of-clients", "needed", "between", "private", "by-settable-property"
    ]  # fmt: skip
    assert of_rules.declared(Again)["taken_back"].default == 4


def test_an_objective_may_work_out_what_another_is_given():
    """A property in the place of a setting was once taken for its default, and could not be set."""

    class Fading(OBJECTIVES["fedprox"]):
        @property
        def mu(self):
            return 0.25

    assert Fading({}, of_clients.values(Fading, {"mu": 3.0})).mu == 0.25
    target = Overrides()
    of_clients.set_values(target, {"by_settable_property": 3.0})
    assert (target.by_settable_property, target.by_property, target.plain) == (3.0, 2.0, 0.5)


# ---- keys of messages -------------------------------------------------------------------------------


class Recording(dict):
    """A message's config that remembers which keys were looked up."""

    def __init__(self, *args):
        super().__init__(*args)
        self.read = set()

    def __getitem__(self, key):
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key, default=None):
        self.read.add(key)
        return super().get(key, default)


ALWAYS = {wire.SERVER_ROUND: 1, wire.CLIENT_LR: 0.1, wire.EVAL_SPLITS: "test"}
ON_DEMAND = {wire.FINE_TUNE: 1, wire.CLASSES: 3}


@pytest.mark.parametrize("name", [name for name in CLIENTS if name != "alone"])
def test_a_client_reads_and_reports_what_the_wire_names(name):
    client = make_client(CLIENTS[name], objective="fedprox", training=LocalTraining(1, 8))
    config = Recording(ALWAYS | ON_DEMAND)
    update = client.fit(client.get_parameters({}), config)
    _, _, metrics = client.evaluate(client.get_parameters({}), config)
    assert config.read - {"mu"} == ALWAYS.keys() | ON_DEMAND.keys()
    reported = {wire.LOCAL_STEPS, wire.LOCAL_NORM, wire.CLASS_HITS, wire.CLASS_EXAMPLES}
    assert reported <= update.metrics.keys()
    assert {wire.TRAIN_EXAMPLES, wire.CLASS_HITS, wire.CLASS_EXAMPLES} <= metrics.keys()


def test_the_records_of_both_halves_have_one_name():
    spelled = (scaffold.CONTROL, fedproto.PROTOTYPES, fedsat.STRUGGLE)
    assert spelled == (wire.CONTROL, wire.PROTOTYPES, wire.STRUGGLE)
