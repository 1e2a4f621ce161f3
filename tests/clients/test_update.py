"""What a client is given and gives: Flower's list, by name."""

import copy
import doctest
import pickle

import numpy as np
import pytest
import torch
from flwr.common import Code, FitIns, Parameters, ndarrays_to_parameters, parameters_to_ndarrays
from torch import nn

from clients import FedAvgClient, FedBNClient, NamedArrays, Received, Update, by_name
from clients.returned import WrongResult, described, kept_at_home

from .helpers import CONFIG, make_client

ONE = {"w": np.ones(2, np.float32)}
TWO = {"w": np.ones(2), "b": np.zeros(1)}


def test_an_update_is_the_triple_that_flower_asks_for():
    update = Update(NamedArrays(ONE), 3, {"loss": 0.5}, {"control": ONE})
    arrays, num_examples, metrics = update
    assert isinstance(update, tuple)
    assert (num_examples, metrics, len(arrays)) == (3, {"loss": 0.5}, 1)
    for same in (copy.deepcopy(update), pickle.loads(pickle.dumps(update))):
        np.testing.assert_array_equal(same.records["control"]["w"], ONE["w"])
        np.testing.assert_array_equal(same.arrays.by_name()["w"], ONE["w"])
    assert Update(*update).records == {}


def test_what_is_received_is_the_list_that_flower_gives():
    received = Received(ONE, {"control": ONE})
    assert isinstance(received, list)
    assert received.by_name().keys() == {"w"}
    assert received.records == {"control": ONE}
    assert Received({}).records == {}


def test_the_example_in_the_docstring():
    (example,) = doctest.DocTestFinder().find(NamedArrays, globs={"NamedArrays": NamedArrays, "np": np})[:1]
    assert doctest.DocTestRunner().run(example) == (0, 2)


BACKWARDS = dict(reversed(TWO.items()))


@pytest.mark.parametrize(
    "arrays", [TWO, NamedArrays(TWO), list(TWO.values()), BACKWARDS, NamedArrays(BACKWARDS)]
)
def test_arrays_are_found_by_name_in_every_form_and_order(arrays):
    found = by_name(arrays, ["w", "b"])
    assert list(found) == ["w", "b"]
    assert all(found[name] is TWO[name] for name in TWO)


def test_an_array_put_in_anothers_place_has_its_name():
    arrays = NamedArrays(TWO)
    arrays[1] = np.full(1, 7.0)
    assert arrays.by_name()["b"] == 7


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"w": ONE["w"], "c": ONE["w"]}, "differ in b, c"),
        (NamedArrays(ONE), "differ in b"),
        ([ONE["w"]], "1 arrays for 2 shared entries"),
        ([ONE["w"]] * 3, "3 arrays for 2 shared entries"),
    ],
)
def test_other_arrays_than_the_models_are_refused(arrays, reason):
    with pytest.raises(ValueError, match=reason):
        by_name(arrays, ["w", "b"])


def test_an_array_added_to_named_ones_has_no_name():
    arrays = NamedArrays(ONE)
    arrays.append(ONE["w"])
    with pytest.raises(ValueError, match="2 arrays for 1 shared entries"):
        arrays.by_name()


@pytest.mark.parametrize("cls", [FedAvgClient, FedBNClient])
def test_a_client_goes_by_names_and_gives_names(cls):
    """The same bits from a plain list in the model's order, and from names in another order."""
    client, other, named = (make_client(cls) for _ in range(3))
    start = client.get_parameters({})
    assert list(start.names) == client.shared_names
    update = client.fit(start, CONFIG)
    backwards = Received(dict(reversed(start.by_name().items())))
    for same in (other.fit(list(start), CONFIG), named.fit(backwards, CONFIG)):
        assert same.arrays.names == tuple(client.shared_names)
        for name, array in update.arrays.by_name().items():
            np.testing.assert_array_equal(same.arrays.by_name()[name], array, strict=True)


def test_flower_itself_can_use_the_client():
    """Through ``to_client``, as any NumPyClient."""
    client, other = make_client("shared"), make_client("shared")
    start = client.get_parameters({})
    parameters: Parameters = ndarrays_to_parameters(start)
    result = client.to_client().fit(FitIns(parameters, dict(CONFIG)))
    assert result.status.code == Code.OK
    expected = other.fit(list(start), CONFIG)
    assert result.num_examples == expected.num_examples
    for one, another in zip(parameters_to_ndarrays(result.parameters), expected.arrays, strict=True):
        np.testing.assert_array_equal(one, another, strict=True)


# ---- names of what stays at home, and values in a few words -------------------------------------------


def keeping(local):
    return type("Own", (FedAvgClient,), {"local_entries": staticmethod(local)})


@pytest.mark.parametrize("kind", [set, frozenset, list, tuple, iter, dict.fromkeys])
def test_any_iterable_of_names_is_a_set_of_them(kind):
    assert kept_at_home(keeping(lambda model: kind(["0.weight", "0.bias"])), nn.Linear(1, 1)) == {
        "0.weight",
        "0.bias",
    }


@pytest.mark.parametrize("given", ["0.weight", b"0", None, 3, [1, 2], [["0.weight"]], torch.ones(2)])
def test_anything_else_is_refused_one_text_included(given):
    with pytest.raises(WrongResult, match=r"Own\.local_entries returned .+, expected a set of names"):
        kept_at_home(keeping(lambda model: given), nn.Linear(1, 1))


def test_values_are_described_in_a_few_words():
    assert described((1, "a", None)) == "(1, 'a', None)"
    assert described(np.ones(3)) == "an object of type ndarray"
    assert described({"a": torch.ones(1, requires_grad=True)}) == "{'a': a tensor of shape (1,)}"
    assert issubclass(WrongResult, TypeError)
