"""Which clients, losses and networks of ours train in lockstep, and that it is as one by one."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from clients import CLIENTS, LOSSES, FedAvgClient, LocalTraining
from clients.modules.precision import compute_in
from fedbn_flower.lockstep import fit_in_lockstep, reason_not_equivalent, reason_not_supported
from tests.surroundings import SET

from ...clients.helpers import CONFIG, conv_model, make_client, make_examples, received, small_model
from ...clients.modules.test_precision import HALF
from ...clients.modules.test_surroundings import check_it_trains_and_evaluates_as_ever
from ...clients.networks import dropping
from ...clients.policies.test_shares import sharing
from ...clients.test_gpu import DEVICE, make, needs_gpu
from ...clients.test_losses import SETTINGS, OwnFocal
from .test_lockstep import assert_same, check, cohort, rounds

ALONE = (
    "apfl", "ditto", "fbn", "fedala", "fedbabu", "fedrep", "fedrod", "hbn", "per-fedavg", "pfedme",
)  # fmt: skip
NOT_ELEMENTWISE = ("moon", "fedrs", "fedlc", "fedsam", "fedspeed", "fedntd", "fedgkd", "feddecorr")
SHARES = [(0.05, 1.0), (0.3, 0.9), (1.0, 0.5), (0.99, 0.02), (0.5, 0.6), (1.0, 0.1)]


@pytest.mark.parametrize("name", ALONE)
def test_clients_with_a_training_of_their_own_train_alone(name):
    cls, task = CLIENTS[name], make_client(FedAvgClient).task
    assert reason_not_supported(cls, task).startswith(f"client {cls.__name__} overrides ")


@pytest.mark.parametrize("name", ["fedper", "fixbn", "knn-per", "lg-fedavg"])
def test_clients_that_train_as_others_do_it_in_lockstep(name):
    task = make_client(CLIENTS[name]).task
    assert (reason_not_supported(CLIENTS[name], task) or reason_not_equivalent(CLIENTS[name], task, {})) == ""


def test_clipping_of_each_example_is_done_alone():
    task = make_client(FedAvgClient).task
    vars(task).update(private=lambda server_round: None)
    assert reason_not_supported(FedAvgClient, task) == "each example's gradient is clipped"


@pytest.mark.parametrize("precision", HALF)
def test_models_in_half_precision_train_one_by_one(precision):
    """Known parts, and in float32 served: it is the precision. The trial refuses it, too."""
    model = small_model()
    client = make_client(CLIENTS["fedbn"], model=model)
    ways = partial(reason_not_supported, CLIENTS["fedbn"], client.task)
    assert ways() == ""
    compute_in(model, precision)
    assert "it computes in torch." in ways()
    assert reason_not_equivalent(CLIENTS["fedbn"], client.task, {}).startswith("the trial ")


def test_clipped_adaptively():
    training = LocalTraining(epochs=2, batch_size=8, agc=0.01)
    found = [rounds(cohort(CLIENTS["fedbn"], training), {}, lockstep) for lockstep in (True, False)]
    assert_same(*found)
    free = rounds(cohort(CLIENTS["fedbn"], LocalTraining(epochs=2, batch_size=8)), {}, False)
    assert np.abs(free[0][0][0][0] - found[1][0][0][0][0]).max() > 1e-4


def test_fixbn_before_and_after_it_fixes():
    def make():
        clients = cohort(CLIENTS["fixbn"], LocalTraining(epochs=2, batch_size=8))
        for client in clients:
            client.fix_from = 2
        return clients

    check(make)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("objective", ["plain", "feddyn", "scaffold"])
@pytest.mark.parametrize("batch_size", [8, 0])
def test_shares_of_the_work(objective, batch_size):
    """Clients with many examples and few steps among them, others in every round."""
    ways = []
    for lockstep in (True, False):
        clients = cohort(CLIENTS["fedbn"], LocalTraining(3, batch_size), objective=objective)
        for client, shares in zip(clients, SHARES, strict=True):
            sharing(client, *shares)
        ways.append(rounds(clients, {"alpha": 0.1}, lockstep))
    assert_same(*ways)
    output = [answer[2]["local-steps"] for answer in ways[0][0]]
    # 17, 40, 8, 33, 9 and 2 examples are 2, 5, 1, 4, 1 and 1 batches of 8, thrice
    by_hand = [1, 5, 3, 12, 2, 3, 6, 14, 2, 1, 2, 1]
    assert output == (by_hand if batch_size else [1, 1, 3, 3, 2, 3, 3, 3, 2, 1, 2, 1])


def test_the_trial_before_lockstep_does_all_of_its_work():
    def never(server_round):
        raise AssertionError

    task = replace(make_client(FedAvgClient).task, share=never)
    assert reason_not_equivalent(FedAvgClient, task, {}) == ""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["focal", "label-smoothing"])
def test_clients_whose_losses_are_alike_train_in_lockstep(name):
    def make():
        clients = cohort(CLIENTS["fedbn"], LocalTraining(2, 8, momentum=0.9), objective="fedprox")
        for client in clients:
            client.task.__dict__.update(loss=LOSSES[name], loss_settings=SETTINGS[name])
        return clients

    check(make, {"mu": 0.1})
    task = make()[0].task
    assert reason_not_supported(FedAvgClient, task) == reason_not_equivalent(FedAvgClient, task, {}) == ""


@pytest.mark.parametrize(
    ("objective", "loss", "why"),
    [
        ("plain", "class-balanced", "loss ClassBalanced does not set `alike`"),
        ("plain", "logit-adjusted", "loss LogitAdjusted does not set `alike`"),
        *((name, "auto", "does not set `elementwise`") for name in NOT_ELEMENTWISE),
    ],
)
def test_what_needs_something_of_the_client_trains_alone(objective, loss, why):
    task = make_client(FedAvgClient, objective=objective).task
    task.__dict__["loss"] = LOSSES[loss]
    assert why in reason_not_supported(FedAvgClient, task)


def test_a_class_that_extends_one_says_it_anew():
    task = make_client(FedAvgClient, model=dropping()).task
    task.__dict__["loss"] = OwnFocal
    assert reason_not_supported(FedAvgClient, task) == "loss OwnFocal does not set `alike`"


@pytest.mark.parametrize("make_model", [small_model, pytest.param(conv_model, marks=needs_gpu)])
def test_lockstep_passes_its_trial_and_is_as_one_by_one(make_model):
    client = make(DEVICE, "shared", make_model=make_model)
    assert reason_not_supported(type(client), client.task) == ""
    assert reason_not_equivalent(type(client), client.task, {}) == ""
    clients = [make(DEVICE, "shared", make_model=make_model, seed=seed) for seed in range(4)]
    clients = [type(c)(replace(c.task, model=client.task.model), c.memory) for c in clients]
    for size, one in zip((40, 17, 8, 33), clients, strict=True):
        one.task.__dict__["train"] = make_examples(size, seed=size)
        one.task.train.__dict__["device"] = DEVICE
    alone = [one.fit(received(one), CONFIG) for one in clients]
    for update, expected in zip(fit_in_lockstep(clients, received(client), CONFIG), alone, strict=True):
        for x, y in zip(update.arrays, expected.arrays, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-4)


@pytest.mark.parametrize("name", SET)
def test_whatever_the_caller_has_set(name):
    check_it_trains_and_evaluates_as_ever(name, lambda client, *given: fit_in_lockstep([client], *given)[0])
