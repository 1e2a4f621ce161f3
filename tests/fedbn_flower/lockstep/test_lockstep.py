"""Clients in lockstep against the same clients one by one."""

from dataclasses import replace
from functools import partial
from itertools import product
from types import MappingProxyType

import numpy as np
import pytest
import torch
from torch import nn

from clients import CLIENTS, OBJECTIVES, Examples, LocalTraining, Received, examples
from clients.modules.optimizers import STACKABLE
from fedbn_flower.lockstep import fit_in_lockstep
from fedbn_flower.lockstep.train import _concatenated

from ...clients.helpers import CONFIG, conv_model, make_client, make_examples, small_model
from ...quick import diagonal_quick, some_quick

ELEMENTWISE = [name for name, cls in OBJECTIVES.items() if cls.elementwise]
SIZES = (17, 40, 8, 33, 9, 2)  # of batches of 8: a lone last example, full ones only, one batch, ...


def cohort(cls, training, make_model=small_model, sizes=SIZES, objective="plain"):
    """Clients that share one model, the local entries and memories of each its own."""
    model = make_model()
    clients = []
    for i, size in enumerate(sizes):
        client = make_client(cls, None, model, i, training, objective)
        client.task.__dict__["train"] = make_examples(
            size, seed=i, shape=client.task.train.columns["x"].shape[1:]
        )
        clients.append(client)
    return clients


def rounds(clients, config, lockstep, count=2):
    """Some rounds from one and the same model each; what every client answered and remembers."""
    first = clients[0]
    control = {n: np.full_like(first.task.initial[n], 0.01) for n in first.trained_names}
    received = Received(first.get_parameters({}).by_name(), dict.fromkeys(("control", "momentum"), control))
    answers = []
    for server_round in range(1, count + 1):
        given = CONFIG | config | {"server-round": server_round}
        if lockstep:
            updates = fit_in_lockstep(clients, received, given)
        else:
            updates = [client.fit(received, given) for client in clients]
        for client, update in zip(clients, updates, strict=True):
            client.memory.commit()
            arrays = [np.array(array, order="K") for array in update.arrays]  # valid until the next call
            answers.append((arrays, *update[1:], update.records.get("control", {})))
    memories = [
        {
            (group, name): array
            for group in ("local", client.objective_group)
            for name, array in (client.memory.read(group) or {}).items()
        }
        for client in clients
    ]
    return answers, memories


def assert_same(lockstep, one_by_one, atol=1e-5):
    for a, b in zip(lockstep[0], one_by_one[0], strict=True):
        for x, y in zip(a[0], b[0], strict=True):
            assert (x.dtype, x.shape, x.flags.c_contiguous) == (y.dtype, y.shape, True)
            np.testing.assert_allclose(x, y, atol=atol)
        assert a[1] == b[1]
        assert a[2] == pytest.approx(b[2], abs=atol)
        assert a[3].keys() == b[3].keys()
        for name in a[3]:
            np.testing.assert_allclose(a[3][name], b[3][name], atol=10 * atol)  # divided by K lr
    for a, b in zip(lockstep[1], one_by_one[1], strict=True):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_allclose(a[name], b[name], atol=10 * atol)


def check(make, config=MappingProxyType({}), atol=1e-5):
    """That a cohort in lockstep, as ``make`` makes it, is as one by one."""
    assert_same(*(rounds(make(), config, lockstep) for lockstep in (True, False)), atol)


def test_who_goes_in_lockstep():
    assert {*ELEMENTWISE} == {
        "plain", "fedprox", "feddyn", "scaffold", "scaffold-momentum", "feddc", "fedadmm", "fedcm", "fedacg",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("objective", "client"), diagonal_quick(ELEMENTWISE, ["shared", "silobn", "fedbn", "fedper"])
)
def test_every_client_and_elementwise_objective(client, objective):
    config = {"alpha": 0.1, "mu": 0.5, "eval-splits": "test"}
    check(lambda: cohort(CLIENTS[client], LocalTraining(1, 8), objective=objective), config)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "training",
    [
        LocalTraining(2, 8, momentum=0.9, weight_decay=0.1),
        LocalTraining(2, 8, optimizer="adam", weight_decay=0.01),
        LocalTraining(2, 8, clip_norm=0.2),
        LocalTraining(2, 0),
    ],
    ids=["momentum", "adam", "clipped", "whole batches"],
)
@pytest.mark.parametrize("objective", ["plain", "feddyn"])
def test_every_way_of_training(training, objective):
    atol = 1e-4 if training.optimizer == "adam" else 1e-5  # Adam divides by what is near 0
    make = partial(cohort, CLIENTS["fedbn"], training, objective=objective)
    check(make, {"alpha": 0.1, "client-lr": 0.01}, atol)


def all_gradients_matter():
    """Without a bias before BatchNorm, whose gradient is nothing but rounding."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)
    )


@pytest.mark.parametrize(
    ("optimizer", "weight_decay"),
    some_quick(  # the others as test_optimizers.py steps with them
        [*product([*sorted(STACKABLE), "sgd:nesterov=true", "adam:amsgrad=true"], [0.01, 0.0])],
        range(0, 99, 14),
    ),
)
def test_every_optimiser_that_steps_on_stacked_parameters(optimizer, weight_decay):
    training = LocalTraining(2, 8, optimizer, momentum=0.9, weight_decay=weight_decay)
    make = partial(cohort, CLIENTS["shared"], training, all_gradients_matter, objective="fedprox")
    check(make, {"client-lr": 0.01, "mu": 0.1}, 1e-5 if optimizer.startswith("sgd") else 1e-4)


def test_convolutions_and_batch_norm_over_images():
    check(lambda: cohort(CLIENTS["silobn"], LocalTraining(2, 8), conv_model))


def test_without_a_bias_no_parameter_has_a_gradient():
    """Those of the weights stay factors, so nothing is left for the optimiser."""

    def make_model():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(4, 5, False), nn.ReLU(), nn.Linear(5, 3, False))

    check(lambda: cohort(CLIENTS["shared"], LocalTraining(1, 8), make_model))


def test_clients_of_one_size_need_no_mask():
    check(lambda: cohort(CLIENTS["shared"], LocalTraining(1, 8), sizes=[16] * 4))


def test_a_client_that_diverges_is_alone_in_it():
    clients = cohort(CLIENTS["fedbn"], LocalTraining(1, 8))
    own = {n: np.array(clients[2].task.initial[n]) for n in clients[2].local_names}
    own["2.weight"][:] = np.nan
    clients[2].memory.write("local", own)
    clients[2].memory.commit()
    results = fit_in_lockstep(clients, clients[0].get_parameters({}), dict(CONFIG))
    assert [isinstance(result, FloatingPointError) for result in results] == [i == 2 for i in range(6)]


@pytest.mark.parametrize("sizes", [(9, 1, 16, 1), (1, 1)], ids=["last ones active", "nobody else"])
def test_a_client_of_one_example_fails_under_batch_norm_as_it_does_alone(sizes):
    """Its one batch is a step of each epoch; the others have done theirs after three."""
    training = LocalTraining(epochs=5, batch_size=0)
    clients, alone = (cohort(CLIENTS["fedbn"], training, sizes=sizes) for _ in range(2))
    for one, lone, size in zip(clients, alone, sizes, strict=True):
        share = 1.0 if size == 1 else 0.6
        one.task.__dict__["share"] = lone.task.__dict__["share"] = lambda server_round, share=share: share
    received = clients[0].get_parameters({})
    results = fit_in_lockstep(clients, received, dict(CONFIG))
    for result, size, lone in zip(results, sizes, alone, strict=True):
        if size == 1:
            assert isinstance(result, ValueError)
            assert str(result).startswith("Expected more than 1 value per channel")
        else:
            for x, y in zip(result.arrays, lone.fit(received, dict(CONFIG)).arrays, strict=True):
                np.testing.assert_allclose(x, y, atol=1e-5)


def test_one_value_per_channel_is_a_single_example_only_where_the_image_is_one_pixel():
    check(lambda: cohort(CLIENTS["fedbn"], LocalTraining(2, 0), lambda: conv_model()[:-1], sizes=(1, 6, 1)))


def test_what_failed_in_lockstep_is_forgotten_before_the_client_trains_alone(monkeypatch):
    """Here lockstep fails after the memory was written: the first round starts from no memory again."""
    clients, alone = (cohort(CLIENTS["fedbn"], LocalTraining(1, 8), sizes=(9, 16)) for _ in range(2))
    end_run, calls = type(clients[0]).end_run, []

    def failing_once(self, *arguments, **options):
        update = end_run(self, *arguments, **options)
        if self is clients[0] and not calls:
            calls.append(self)
            raise RuntimeError("after the memory was written")
        return update

    monkeypatch.setattr(type(clients[0]), "end_run", failing_once)
    received = clients[0].get_parameters({})
    result = fit_in_lockstep(clients, received, dict(CONFIG))[0]
    for x, y in zip(result.arrays, alone[0].fit(received, dict(CONFIG)).arrays, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("scales", [(1, 1, 1), (1, 10, 1)])
def test_rows_of_one_table_each_prepared_as_its_client_does(scales):
    """Three clients of one table, which prepare alike or one of them its own way."""
    x, y = np.arange(6, dtype=np.float32).reshape(6, 1), np.arange(6) % 2
    prepares = {scale: partial(scaled, scale) for scale in scales}
    shares = [np.array(rows) for rows in ([4, 0], [3], [5, 1])]
    examples = [
        Examples({"x": x, "y": y}, rows, prepares[scale]) for rows, scale in zip(shares, scales, strict=True)
    ]
    columns, prepare = _concatenated(examples)
    inputs, targets = prepare(columns)
    assert inputs.flatten().tolist() == [4, 0, 3 * scales[1], 5, 1]
    assert targets.tolist() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("scales", [(1, 1), (1, 2)], ids=["of one dataset", "each its own"])
def test_a_cohort_takes_what_is_on_a_gpu(scales, monkeypatch):
    """Here a processor stands for one: rows are sent once, and in the next round none are."""
    columns = {"x": np.arange(6.0), "y": np.arange(6)}
    prepares = {scale: partial(scaled, scale) for scale in scales}
    shares = (np.array([4, 0]), np.array([3, 5, 1]))
    own = [Examples(columns, rows, prepares[s]) for rows, s in zip(shares, scales, strict=True)]
    expected = _prepared(own)
    monkeypatch.setattr(examples, "has_room", lambda device, size: True)
    held = [replace(one) for one in own]
    _concatenated(held)
    monkeypatch.setattr(Examples, "gathered", lambda self, rows: pytest.fail("it was sent again"))
    found = _prepared(held)
    assert all(map(torch.equal, found, expected))
    assert found[0].tolist() == [4, 0, 3 * scales[1], 5 * scales[1], scales[1]]


def _prepared(own):
    columns, prepare = _concatenated(own)
    return prepare(columns)


def scaled(scale, columns):
    return columns["x"] * scale, columns["y"]


@pytest.mark.parametrize("objective", ["scaffold", "feddyn"])
def test_who_has_a_memory_trains_beside_those_who_have_none_yet(objective):
    found = []
    for lockstep in (True, False):
        clients = cohort(CLIENTS["shared"], LocalTraining(1, 8), objective=objective)
        rounds(clients[:1], {}, lockstep=False, count=1)
        found.append(rounds(clients, {}, lockstep, count=1))
    assert_same(*found)
