"""Clients compute as in a new process, whatever the caller has set, and leave it as it was."""

from contextlib import contextmanager, suppress
from functools import partial

import numpy as np
import pytest
import torch

from clients import FedAvgClient
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
        torch.get_float32_matmul_precision(),
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


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", SET)
def test_a_client_trains_and_evaluates_as_ever(name):
    check_it_trains_and_evaluates_as_ever(name, FedAvgClient.fit)


def check_it_trains_and_evaluates_as_ever(name, fit):
    def fitted():
        client = make_client("shared", objective="fedprox", model=small_model())
        update = fit(client, client.get_parameters({}), CONFIG | {"mu": 0.1})
        loss, _, metrics = client.evaluate(update.arrays, CONFIG)
        return [array.copy() for array in update.arrays], loss, metrics

    expected = fitted()
    client_made_before = make_client("shared", objective="fedprox", model=small_model())
    with SET[name]():
        update = fit(client_made_before, client_made_before.get_parameters({}), CONFIG | {"mu": 0.1})
        arrays = [array.copy() for array in update.arrays]
        loss, _, metrics = client_made_before.evaluate(update.arrays, CONFIG)
    assert all(np.array_equal(x, y) for x, y in zip(arrays, expected[0], strict=True))
    assert (loss, metrics) == expected[1:]


def switches():
    """Those that can be read now."""
    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    found = [torch.get_float32_matmul_precision()]
    with suppress(RuntimeError):
        found += [cudnn.allow_tf32, products.allow_tf32]
    newer = [part for part in (getattr(cudnn, "conv", None), getattr(cudnn, "rnn", None)) if part]
    return [*found, *(part.fp32_precision for part in newer)]


@contextmanager
def chosen(older=True, newer="none", products="highest"):
    """What a caller may have chosen; afterwards PyTorch's defaults."""
    cudnn = torch.backends.cudnn
    try:
        cudnn.allow_tf32 = older
        torch.set_float32_matmul_precision(products)
        if newer != "none":
            cudnn.conv.fp32_precision = newer
        yield
    finally:
        cudnn.allow_tf32 = True
        torch.set_float32_matmul_precision("highest")


NEWER = hasattr(torch.backends.cudnn, "conv")
TF32 = {
    "by default": chosen,
    "off": partial(chosen, older=False),
    "for products too": partial(chosen, products="high"),
    "bf16 for products": partial(chosen, products="medium"),
} | ({"by the newer switches": partial(chosen, older=False, newer="tf32")} if NEWER else {})


@pytest.mark.parametrize("name", TF32)
def test_float32_is_not_tf32_and_what_was_set_comes_back(name):
    """Both generations of PyTorch's switches, each read as the caller set it."""
    with TF32[name]():
        before = switches()
        with usual_surroundings():
            assert set(switches()) <= {False, "ieee", "none", "highest"}
        assert switches() == before


def test_training_by_itself_records_gradients():
    client = make_client("shared")
    run = client.begin_run(dict(client.task.model.named_parameters()), CONFIG, {})
    with torch.no_grad():
        assert train_model(client.task.model, run)["local-steps"] > 0


def test_what_a_file_sets_when_it_is_imported_is_undone():
    with kept_surroundings():
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
    assert found() == USUAL
