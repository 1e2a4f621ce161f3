"""Clients joined by ``+``: the union of what stays at home, the methods of all; or why there is none."""

import numpy as np
import pytest

from clients import DittoClient, FedAvgClient, FedBNClient, FedPerClient, FedRepClient, SiloBNClient
from fedbn_flower.config.conflicts import of_requirements
from fedbn_flower.config.making import run_config
from fedbn_flower.config.named_algorithms import named
from fedbn_flower.core.errors import UserError, refuse
from fedbn_flower.job.checks.notices import notices
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.names import CLIENT, absolute, short
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.cohorts import cohort_of

from ...clients.helpers import CONFIG, make_client, small_model
from ..refusal import one_line

OWN = """
from clients import FedAvgClient, FedPerClient, setting

class First(FedAvgClient):
    "Keeps the first bias."
    pull: float = setting(0.5, ge=0)
    requires = {"client-optimizer": {"sgd"}}

    @staticmethod
    def local_entries(model):
        return {"1.bias"}

class Second(FedAvgClient):
    pull: float = setting(0.7, ge=0)

class Adam(FedAvgClient):
    requires = {"client-optimizer": {"adam"}}

class Head(FedPerClient):
    pass
"""
HEAD = {"4.weight", "4.bias"}
STATISTICS = {"2.running_mean", "2.running_var", "2.num_batches_tracked"}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current directory, with a file in a folder that has a + in its name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c++").mkdir()
    (tmp_path / "c++" / "own.py").write_text(OWN)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "bases", "local"),
    [
        ("fedbn+fedper", (FedBNClient, FedPerClient), STATISTICS | HEAD | {"2.weight", "2.bias"}),
        ("silobn+fedrep", (SiloBNClient, FedRepClient), STATISTICS | HEAD),
        ("silobn+ditto", (SiloBNClient, DittoClient), STATISTICS),
        ("ditto+fedper+silobn", (DittoClient, FedPerClient, SiloBNClient), STATISTICS | HEAD),
    ],
)
def test_the_union_of_what_stays_at_home_and_the_methods_of_all(name, bases, local):
    cls = CLIENT.find(name)
    assert CLIENT.find(name) is cls
    assert cls.__bases__ == bases
    assert cls.__name__ == "+".join(base.__name__ for base in bases)
    assert cls.local_entries(small_model()) == local
    assert make_client(cls).with_objective(make_client(cls).task.objective).local_names
    for base in bases:
        for method in vars(base).keys() & {"train", "load_to_evaluate"}:
            assert getattr(cls, method) is getattr(base, method)
    assert short(name) == absolute(name) == name


@pytest.mark.parametrize("name", ["ditto+fedrep", "fedrep+ditto"])
def test_in_either_order_the_shared_training_is_that_without_ditto(name):
    client, without = make_client(CLIENT.find(name)), make_client(FedRepClient)
    updates = [c.fit(c.get_parameters({}), CONFIG) for c in (client, without)]
    for a, b in zip(updates[0].arrays, updates[1].arrays, strict=True):
        np.testing.assert_array_equal(a, b)
    personal = client.memory.read("personal")
    assert not np.array_equal(personal["4.weight"], client.memory.read("local")["4.weight"])


def test_one_from_a_file_whose_folder_has_a_plus_in_its_name(here):
    name = "c++/own.py:First+fedbn"
    cls = CLIENT.find(name)
    assert cls.__bases__[1] is FedBNClient
    assert cls.local_entries(small_model()) == STATISTICS | {"1.bias", "2.weight", "2.bias"}
    assert short(name) == "own.First+fedbn"
    assert absolute(name) == f"{here}/c++/own.py:First+fedbn"
    assert absolute("fedbn+c++/own.py:First") == f"fedbn+{here}/c++/own.py:First"
    config = run_config({"client": f"{name}+ditto", "pull": 0.25, "ditto-lambda": 2.0})
    output = config.settings_for(CLIENT.find(config.client))
    assert (output["pull"], output["ditto_lambda"]) == (0.25, 2.0)
    with pytest.raises(UserError, match="client-optimizer: 'adam' is not allowed; expected 'sgd'"):
        run_config({"client": name, "client-optimizer": "adam"})


OTHERWISE = "client: {!r} is not allowed; expected "
NOT_TOGETHER = {
    "fedbn+fedbn": "no name twice",
    "silobn+fedbn": "only one of 'silobn' and 'fedbn', which both decide about BatchNorm",
    "ditto+fedper+fedrep": "only 'fedrep', which is 'fedper' and more",
    "c++/own.py:Head+fedrep": "only one of 'c++/own.py:Head' and 'fedrep', which both decide about the head",
    "fedbabu+fedper": "only one of 'fedbabu' and 'fedper', which both decide about the head",
    "fedbn+shared": "only 'fedbn', which is 'shared' and more",
    "c++/own.py:First+c++/own.py:Second": (
        "only one of 'c++/own.py:First' and 'c++/own.py:Second': they differ in the setting 'pull'"
    ),
    "c++/own.py:First+c++/own.py:Adam": (
        "only one of 'c++/own.py:First' and 'c++/own.py:Adam': they differ in what they require of 'client-"
    ),
}
UNKNOWN = {
    "fedbm+fedper": "client: unknown name 'fedbm' (did you mean 'fedbn'?); expected one of alone,",
    "fedbn+": "client: unknown name ''; expected one of alone, apfl, ditto,",
    "c++/own.py:Frist+fedbn": "client: unknown name 'Frist' (did you mean 'First'?)",
}
REFUSED = {name: OTHERWISE.format(name) + words for name, words in NOT_TOGETHER.items()} | UNKNOWN


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_go_together_is_one_line(here, name):
    with one_line(REFUSED[name]):
        CLIENT.find(name)


def test_a_union_is_called_what_its_parts_are_called():
    class OnlyFedBN(FedAvgClient):
        requires = {"client": {"fedbn"}}

    def check(client):
        algorithms = named({"client": client})
        object.__setattr__(algorithms[2], "cls", OnlyFedBN)
        refuse(of_requirements(algorithms, {"client": client, "strategy": "fedyogi", "objective": "plain"}))

    check("fedbn+fedper")
    with pytest.raises(UserError, match=r"client: 'silobn\+fedper' is not allowed; expected 'fedbn'"):
        check("silobn+fedper")


NOTHING_LEFT = "expected another one: no entry is left to share"
NO_BODY = "expected another one: before the head of 'linear' nothing is trained"


@pytest.mark.parametrize(
    ("client", "keys", "line"),
    [
        *((client, {"model": "linear"}, NOTHING_LEFT) for client in ("fedper", "fedbn+fedper")),
        *((client, {"model": "linear"}, NO_BODY) for client in ("fedbabu", "ditto+fedbabu")),
        ("lg-fedavg+fedper", {}, NOTHING_LEFT),
        ("alone", {}, "expected another one, or strategy and objective 'fedproto' with it:"),
    ],
)
def test_clients_that_leave_nothing_to_train_or_to_share(configured, client, keys, line):
    """A model that is all head, or what stays at home altogether."""
    with pytest.raises(UserError, match=line):
        Federation(configured(client=client, **keys))


def test_a_part_that_keeps_nothing_is_reported(configured):
    keys = {"model": "2nn", "client": "fedbn+fedper"}
    assert output(configured(**keys)) == ["client: 'fedbn' keeps nothing at home of '2nn'"]
    assert output(configured(**keys | {"client": "ditto"})) == []


def output(config):
    federation = Federation(config)
    return notices(federation.inputs)


def test_a_union_of_those_that_train_in_lockstep_does(configured):
    pytest.importorskip("fedbn_flower.lockstep")
    found = cohort_of(inputs_of(configured(client="fedbn+fedper", num_clients=42, partition="iid")))
    assert "in lockstep" in found.why
