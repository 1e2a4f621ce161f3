"""A trial before a run uses lockstep: compare two clients trained in lockstep and one at a time."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
from flwr.common import Scalar
from numpy.typing import NDArray

from ..base import FedAvgClient
from ..examples import Examples
from ..memory import ContextStore, Memory
from ..modules.rng import seeded
from ..objectives.scaffold import CONTROL
from ..training import LocalTask, LocalTraining, all_work
from ..update import Received, by_name
from .stacked_modules import stacked
from .train import fit_in_lockstep

# Batches of 8 and 6, and of 8: with mask, without, and one client alone at the end. Of 4 examples, BatchNorm
# takes deviations near 0, and then rounding alone comes to more than the tolerance.
SIZES = (14, 8)
RATE, ROUNDS, TOLERANCE = 0.1, 2, 1e-4
TRAINING = LocalTraining(epochs=2, batch_size=8)


def reason_not_equivalent(client: type[FedAvgClient], task: LocalTask, settings: Mapping[str, Scalar]) -> str:
    """Run the trial. Return "" if both ways agree, otherwise the reason to train clients one by one.

    Two clients with this ``task`` and random examples of the same shape train for two rounds by plain SGD,
    with the objective's ``settings`` (by flag). All that they send and keep must agree to 1e-4 of the entry's
    largest value. The arguments and torch's generators are unchanged.
    """
    config: dict[str, Scalar] = {
        **settings,
        "client-lr": RATE if _has_classes(task.train) else RATE / 10,  # at 0.1 a squared error diverges
        "client-lr-decay": 1.0,
        "eval-splits": "",
    }
    try:
        with seeded(0):
            stacked_way, plain_way = (_outcomes(client, task, config, lockstep) for lockstep in (True, False))
    except Exception as error:  # any error: training one at a time reports its own
        return f"the trial raised {type(error).__name__}: {' '.join(str(error).split())}"
    finally:
        stacked.cache_clear()
    pairs = zip_longest(stacked_way, plain_way, fillvalue=("", np.empty(0)))
    differ = (name for (name, x), (other, y) in pairs if name != other or not _agree(x, y))
    return next((f"the trial disagreed on {name}" for name in differ), "")


def _outcomes(
    client: type[FedAvgClient], task: LocalTask, config: dict[str, Scalar], lockstep: bool
) -> list[tuple[str, NDArray]]:
    """Return all that the two clients send and keep in every round, by name."""
    model = copy.deepcopy(task.model)
    stores = [ContextStore() for _ in SIZES]
    clients = [
        client(
            replace(
                task,
                model=model,
                train=examples,
                evaluation={},
                training=TRAINING,
                seed=(0, i),
                share=all_work,
            ),
            Memory(store),
        )
        for i, (examples, store) in enumerate(zip(_random_examples(task.train), stores, strict=True))
    ]
    first = clients[0]
    control = {name: np.full_like(task.initial[name], 0.01) for name in first.trained_names}
    received = Received(
        {name: np.array(task.initial[name]) for name in first.shared_names}, {CONTROL: control}
    )
    found: list[tuple[str, Any]] = []
    for server_round in range(1, ROUNDS + 1):
        round_config = config | {"server-round": server_round}
        if lockstep:
            updates = fit_in_lockstep(clients, received, round_config)
        else:
            updates = [one.fit(received, round_config) for one in clients]
        for one, store, update in zip(clients, stores, updates, strict=True):
            if isinstance(update, Exception):
                raise update
            one.memory.commit()
            sent = by_name(update.arrays, one.shared_names)
            found += [(name, np.array(array)) for name, array in sent.items()]
            found += sorted(update.metrics.items())
            for arrays in (*update.records.values(), *store.groups().values()):
                found += sorted(arrays.items())
    return [(name, np.asarray(value)) for name, value in found]


def _random_examples(like: Examples) -> Iterator[Examples]:
    rng = np.random.default_rng(0)
    inputs, targets = like.prepared(np.arange(min(len(like), sum(SIZES))))
    for size in SIZES:
        x = rng.random((size, *inputs.shape[1:]), np.float32)
        y = targets.numpy(force=True)[rng.integers(len(targets), size=size)]
        if y.dtype.kind == "f":  # large targets would diverge at any learning rate
            y = rng.random(y.shape, np.float32)
        yield Examples({"x": x, "y": y}, np.arange(size), device=like.device)


def _has_classes(examples: Examples) -> bool:
    return not examples.prepared(np.arange(1))[1].is_floating_point()


def _agree(found: NDArray, expected: NDArray) -> bool:
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return False
    if found.dtype.kind != "f":
        return np.array_equal(found, expected)
    scale = max(np.abs(expected).max(initial=0.0), RATE)
    return bool(np.abs(found - expected).max(initial=0.0) <= TOLERANCE * scale)
