"""Names of what stays at home, in any iterable; values in a few words."""

import numpy as np
import pytest
import torch
from torch import nn

from clients import FedAvgClient
from clients.returned import WrongResult, described, kept_at_home


def client(local):
    return type("Own", (FedAvgClient,), {"local_entries": staticmethod(local)})


@pytest.mark.parametrize("kind", [set, frozenset, list, tuple, iter, dict.fromkeys])
def test_any_iterable_of_names_is_a_set_of_them(kind):
    assert kept_at_home(client(lambda model: kind(["0.weight", "0.bias"])), nn.Linear(1, 1)) == {
        "0.weight",
        "0.bias",
    }


@pytest.mark.parametrize("given", ["0.weight", b"0", None, 3, [1, 2], [["0.weight"]], torch.ones(2)])
def test_anything_else_is_refused_one_text_included(given):
    with pytest.raises(WrongResult, match=r"Own\.local_entries returned .+, expected a set of names"):
        kept_at_home(client(lambda model: given), nn.Linear(1, 1))


def test_values_are_described_in_a_few_words():
    assert described((1, "a", None)) == "(1, 'a', None)"
    assert described(np.ones(3)) == "an object of type ndarray"
    assert described({"a": torch.ones(1, requires_grad=True)}) == "{'a': a tensor of shape (1,)}"
    assert issubclass(WrongResult, TypeError)
