"""Clients compute as in a new process, whatever the caller has set, and leave it as it was."""

import numpy as np
import pytest
import torch

from clients import FedAvgClient
from clients.lockstep import fit_in_lockstep
from clients.modules.surroundings import kept_surroundings, usual_surroundings
from clients.training import train_model
from tests.surroundings import SET

from ..helpers import make_client, small_model


def found():
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.empty(0).device,
        torch.is_autocast_enabled("cpu"),
        np.geterr(),
    )


USUAL = found()
CONFIG = {"server-round": 1, "client-lr": 0.1, "eval-splits": "test"}


@pytest.mark.parametrize("name", SET)
def test_what_is_set_is_kept_out_and_comes_back(name):
    with SET[name]():
        before = found()
        with usual_surroundings():
            assert found() == USUAL
        assert found() == before
    assert found() == USUAL


@pytest.mark.parametrize("name", SET)
@pytest.mark.parametrize("lockstep", [False, True])
def test_a_client_trains_and_evaluates_as_ever(name, lockstep):
    def fitted():
        client = make_client(FedAvgClient, objective="fedprox", model=small_model())
        received = client.get_parameters({})
        if lockstep:
            (update,) = fit_in_lockstep([client], received, CONFIG | {"mu": 0.1})
        else:
            update = client.fit(received, CONFIG | {"mu": 0.1})
        loss, _, metrics = client.evaluate(update.arrays, CONFIG)
        return [array.copy() for array in update.arrays], loss, metrics

    expected = fitted()
    client_made_before = make_client(FedAvgClient, objective="fedprox", model=small_model())
    with SET[name]():
        received = client_made_before.get_parameters({})
        if lockstep:
            (update,) = fit_in_lockstep([client_made_before], received, CONFIG | {"mu": 0.1})
        else:
            update = client_made_before.fit(received, CONFIG | {"mu": 0.1})
        arrays = [array.copy() for array in update.arrays]
        loss, _, metrics = client_made_before.evaluate(update.arrays, CONFIG)
    assert all(np.array_equal(x, y) for x, y in zip(arrays, expected[0], strict=True))
    assert (loss, metrics) == expected[1:]


def test_training_by_itself_records_gradients():
    client = make_client(FedAvgClient)
    run = client.begin_run(dict(client.task.model.named_parameters()), CONFIG, {})
    with torch.no_grad():
        assert train_model(client.task.model, run)["local-steps"] > 0


def test_what_a_file_sets_when_it_is_imported_is_undone():
    with kept_surroundings():
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
    assert found() == USUAL
