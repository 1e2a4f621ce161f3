"""Settings: declared in a class, given by flag in a message, attributes of its objects."""

from typing import ClassVar

import pytest

from clients import LOSSES, OBJECTIVES, FedAvgClient, Objective, setting
from clients.settings import values
from fedbn_flower.core.ground.settings import declared, flag

from .helpers import CONFIG, make_client


class Pull(Objective):
    mu: float = setting(0.5, ge=0, description="force")
    how_many: int = setting(3, alias="pulls", description="times")

    seen: ClassVar = []

    def begin(self):
        self.seen.append((self.mu, self.how_many))


class Stronger(Pull):
    mu = 2.0


class Personal(FedAvgClient):
    keep_layers: int = setting(1, ge=0, description="layers that stay at home")


def test_a_declaration_says_default_range_and_words():
    field = declared(Pull)["mu"]
    assert (field.default, field.description) == (0.5, "force")
    assert [flag(name, f) for name, f in declared(Personal).items()] == ["keep-layers"]
    assert [flag(name, f) for name, f in declared(Pull).items()] == ["mu", "pulls"]


def test_a_subclass_changes_a_default_and_nothing_else():
    field = declared(Stronger)["mu"]
    assert (field.default, field.description) == (2.0, "force")
    assert field.metadata == declared(Pull)["mu"].metadata
    assert declared(Pull)["mu"].default == 0.5


@pytest.mark.parametrize(("cls", "mu"), [(Pull, 0.5), (Stronger, 2.0)])
def test_what_is_given_and_what_is_not(cls, mu):
    plain = cls({}, {})
    assert (plain.mu, plain.how_many) == (mu, 3)
    given = cls({}, values(cls, {"mu": 0.0, "pulls": 7, "how-many": 9, "server-round": 1}))
    assert (given.mu, given.how_many) == (0.0, 7)


def test_an_unknown_setting_and_a_missing_one_are_refused():
    class Needs(Objective):
        force: float = setting(description="no default")

    with pytest.raises(ValueError, match="Pull has no setting 'nu'; it has .'how_many', 'mu'."):
        Pull({}, {"nu": 1})
    with pytest.raises(ValueError, match="Needs needs a value of its setting 'force'"):
        Needs({}, {})


def test_the_built_in_ones():
    """Their flags and defaults."""
    found = [
        {name: {flag(n, f): f.default for n, f in declared(cls).items()} for name, cls in registry.items()}
        for registry in (OBJECTIVES, LOSSES)
    ]
    objectives = {
        "plain": {}, "fedprox": {"mu": 0.01}, "feddyn": {"alpha": 0.01}, "scaffold": {},
        "scaffold-momentum": {"client-momentum": 0.0},
        "moon": {"mu": 1.0, "moon-temperature": 0.5}, "fedrs": {"rs-a": 0.5}, "fedlc": {"lc-tau": 1.0},
        "fedsam": {"rho": 0.05},
        "fedspeed": {"rho": 0.1, "speed-alpha": 1.0, "speed-lambda": 10.0},
        "fedsmoo": {"rho": 0.1, "smoo-beta": 10.0},
        "fedgkd": {"gkd-gamma": 0.2, "gkd-models": 5, "gkd-temperature": 1.0},
        "feddecorr": {"decorr-beta": 0.1},
        "fedntd": {"ntd-beta": 1.0, "ntd-temperature": 1.0}, "fedproto": {"proto-lambda": 1.0},
        "fedsat": {"confusion-mu": 0.95},
    }  # fmt: skip
    losses = {
        "auto": {}, "class-balanced": {"cb-beta": 0.9999}, "focal": {"focal-gamma": 2.0},
        "label-smoothing": {"smoothing": 0.1}, "logit-adjusted": {"logit-tau": 1.0}, "calc": {},
    }  # fmt: skip
    assert {name: found[0][name] for name in objectives} == objectives
    assert {name: found[1][name] for name in losses} == losses
    assert (OBJECTIVES["fedprox"]({}, {}).mu, OBJECTIVES["feddyn"]({}, {}).alpha) == (0.01, 0.01)


def test_a_message_gives_an_objective_its_settings_by_flag(monkeypatch):
    monkeypatch.setitem(OBJECTIVES, "pull", Pull)
    client = make_client(FedAvgClient, objective="pull")
    Pull.seen.clear()
    client.fit(client.get_parameters({}), CONFIG | {"pulls": 4})
    assert Pull.seen == [(0.5, 4)]


def test_a_client_has_its_settings_from_its_task():
    client = make_client(Personal)
    assert client.keep_layers == 1
    client.task.client_settings["keep_layers"] = 2
    assert Personal(client.task, client.memory).keep_layers == 2
