"""Trials before a run uses lockstep: clients trained in lockstep, and one at a time.

A small one compares all that two clients send and keep. One with batches as the run's are finds what looks at
their number of examples.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from flwr.common import Scalar
from numpy.typing import NDArray

from fedbn_flower.clients.base import FedAvgClient
from fedbn_flower.clients.examples import Examples
from fedbn_flower.clients.memory import ContextStore, Memory
from fedbn_flower.clients.modules.rng import seeded
from fedbn_flower.clients.modules.surroundings import usual_surroundings
from fedbn_flower.clients.training import LocalTask, LocalTraining, all_work, load_entries
from fedbn_flower.clients.update import Received, by_name
from fedbn_flower.core.ground.wire import CLIENT_LR, CONTROL, EVAL_SPLITS, SERVER_ROUND

from .stacked_modules import stacked, takes_stacked_layers
from .train import fit_in_lockstep

# Batches of 8 and 6, and of 8: with mask, without, and one client alone at the end. Of 4 examples, BatchNorm
# takes deviations near 0, and then rounding alone comes to more than the tolerance.
SIZES = (14, 8)
RATE, ROUNDS, TOLERANCE = 0.1, 2, 1e-4
TRAINING = LocalTraining(epochs=2, batch_size=8)
BROKEN = "a class says that it treats each example alone, but "
"""How the reason begins where a class sets ``lockstep_safe``, ``elementwise`` or ``alike`` and should not."""


@usual_surroundings()
def reason_not_equivalent(client: type[FedAvgClient], task: LocalTask, settings: Mapping[str, Scalar]) -> str:
    """Run the trial. Return "" if both ways agree, otherwise the reason to train clients one by one.

    Two clients with this ``task`` and random examples of the same shape train for two rounds by plain SGD,
    with the objective's ``settings`` (by flag). All that they send and keep must agree to 1e-4 of the entry's
    largest value. The arguments and torch's generators are unchanged.
    """
    found = _difference(client, task, settings, random_examples(task.train, SIZES), TRAINING, ROUNDS)
    return found and f"the trial {found}"


@usual_surroundings()
def reason_of_batches(
    client: type[FedAvgClient],
    task: LocalTask,
    settings: Mapping[str, Scalar],
    sizes: NDArray[np.integer],
    cohort: int,
) -> str:
    """Try the batches of the run. Return "" if their number of examples changes nothing, else the reason.

    A class that looks at it, ``if len(x) < 30``, does so in vain in the small trial. Real examples are
    evaluated in the smallest batch that occurs and in that of a whole cohort. Then a cohort trains on one
    batch of random examples both ways.

    Parameters
    ----------
    client : type[FedAvgClient]
        The clients' class.
    task : LocalTask
        The task of one of them.
    settings : Mapping[str, Scalar]
        The objective's, by flag.
    sizes : NDArray
        How many training examples the clients of the run have.
    cohort : int
        How many clients train at once.
    """
    few, many = _batch_sizes(sizes, task.training.batch_size)
    if declared := takes_stacked_layers(task.model):
        model = copy.deepcopy(task.model)
        load_entries(model.state_dict(), task.initial)
        real = replace(task.train, rows=np.resize(task.train.rows, cohort * many))
        inputs, _ = real.prepared(np.arange(len(real)))
        with torch.no_grad(), seeded(0):
            among, alone = model.eval()(inputs)[:few], model(inputs[:few])
        if not agree(among.numpy(force=True), alone.numpy(force=True)):
            return f"{BROKEN}{few} of them give another output than among {len(inputs)}"
    if many < min(SIZES):  # of fewer examples BatchNorm shows rounding alone
        return ""
    examples = random_examples(task.train, [many] * cohort)
    one_step = LocalTraining(batch_size=many)
    found = _difference(client, task, settings, examples, one_step, rounds=1)
    return found and f"{BROKEN if declared else ''}a trial of {cohort} times {many} {found}"


def _batch_sizes(sizes: NDArray[np.integer], batch_size: int) -> tuple[int, int]:
    """Return the fewest and the most examples in a batch; see `Examples.batches`."""
    full = np.minimum(batch_size or sizes.max(), sizes)
    rest = sizes % full
    last = np.where((rest == 0) | ((rest == 1) & (full > 1)), full, rest)
    return int(last.min()), int(full.max())


def _difference(
    client: type[FedAvgClient],
    task: LocalTask,
    settings: Mapping[str, Scalar],
    examples: Sequence[Examples],
    training: LocalTraining,
    rounds: int,
) -> str:
    """Train clients with these examples both ways. Return "" if they agree, else in what they differ."""
    config: dict[str, Scalar] = {
        **settings,
        CLIENT_LR: RATE if _has_classes(task.train) else RATE / 10,  # at 0.1 a squared error diverges
        EVAL_SPLITS: "",
    }
    task = replace(task, training=training)
    if _in_float64(task):
        model = copy.deepcopy(task.model).double()
        task = replace(task, model=model, initial=_doubled(task.initial))
        examples = [replace(one, columns=_doubled(one.columns)) for one in examples]
    clients = task, examples
    try:
        with seeded(0):
            stacked_way, plain_way = (
                _outcomes(client, *clients, config, lockstep, rounds) for lockstep in (True, False)
            )
    except Exception as error:  # any error: training one at a time reports its own
        return f"raised {type(error).__name__}: {' '.join(str(error).split())}"
    finally:
        stacked.cache_clear()
    pairs = zip_longest(stacked_way, plain_way, fillvalue=("", np.empty(0)))
    differ = (name for (name, x), (other, y) in pairs if name != other or not agree(x, y))
    return next((f"disagreed on {name}" for name in differ), "")


def _in_float64(task: LocalTask) -> bool:
    """Whether the trial is in float64: of many layers, rounding in float32 alone is more than the tolerance.

    On a processor, whose runs keep their bits, only what no earlier version trained in lockstep is.
    """
    return not takes_stacked_layers(task.model) or torch.device(task.train.device).type == "cuda"


def _doubled(arrays: Mapping[str, NDArray]) -> dict[str, NDArray]:
    return {n: a.astype(np.float64) if a.dtype == np.float32 else np.asarray(a) for n, a in arrays.items()}


def _outcomes(
    client: type[FedAvgClient],
    task: LocalTask,
    examples: Sequence[Examples],
    config: dict[str, Scalar],
    lockstep: bool,
    rounds: int,
) -> list[tuple[str, NDArray]]:
    """Return all that clients with these examples send and keep in every round, by name."""
    model = copy.deepcopy(task.model)
    stores = [ContextStore() for _ in examples]
    clients = [
        client(
            replace(
                task,
                model=model,
                train=some,
                evaluation={},
                seed=(0, i),
                share=all_work,
            ),
            Memory(store),
        )
        for i, (some, store) in enumerate(zip(examples, stores, strict=True))
    ]
    first = clients[0]
    control = {name: np.full_like(task.initial[name], 0.01) for name in first.trained_names}
    received = Received(
        {name: np.array(task.initial[name]) for name in first.shared_names}, {CONTROL: control}
    )
    found: list[tuple[str, Any]] = []
    for server_round in range(1, rounds + 1):
        round_config = config | {SERVER_ROUND: server_round}
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


def random_examples(like: Examples, sizes: Iterable[int]) -> list[Examples]:
    """Return random examples that look like these, as many as ``sizes`` say."""
    rng = np.random.default_rng(0)
    inputs, targets = like.prepared(np.arange(min(len(like), sum(SIZES))))

    def drawn(values: torch.Tensor, size: int) -> NDArray:
        if values.is_floating_point():  # large targets would diverge at any learning rate
            return rng.random((size, *values.shape[1:]), np.float32)
        return values.numpy(force=True)[rng.integers(len(values), size=size)]

    return [
        Examples({"x": drawn(inputs, size), "y": drawn(targets, size)}, np.arange(size), device=like.device)
        for size in sizes
    ]


def _has_classes(examples: Examples) -> bool:
    return not examples.prepared(np.arange(1))[1].is_floating_point()


def agree(found: NDArray, expected: NDArray) -> bool:
    """Return whether arrays agree to `TOLERANCE` of the largest value, integers exactly."""
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return False
    if found.dtype.kind != "f":
        return np.array_equal(found, expected)
    scale = max(np.abs(expected).max(initial=0.0), RATE)
    return bool(np.abs(found - expected).max(initial=0.0) <= TOLERANCE * scale)
