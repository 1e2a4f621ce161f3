"""Settings: declared in a class, given by flag in a message, attributes of its objects."""

from typing import ClassVar

import pytest

from clients import OBJECTIVES, FedAvgClient, Objective, setting
from fedbn_flower.core.ground.settings import values

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
