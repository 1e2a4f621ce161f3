"""Find state that a user's code keeps between steps outside the entries of the model."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fedbn_flower.clients import ContextStore, LocalTraining, Memory, Received, Update
from fedbn_flower.clients.modules.first_values import KEPT, begin_anew, carrying_on
from fedbn_flower.clients.modules.lazy_torch import torch

from ...core.bits import comparable
from ...core.errors import UserError
from ...core.ground.columns import TEST
from ...core.ground.wire import CLIENT_LR, EVAL_SPLITS, SERVER_ROUND
from ...models.named import MODEL, models_named
from ...names import CLIENT, LOSS, OBJECTIVE, PROBLEM, Registry, parts
from ..inputs import RunInputs
from ..tasks import task_of

EXAMPLES = 2


def warn_about_own_state(inputs: RunInputs) -> Iterator[str]:
    """Yield a warning of state that a model keeps outside its state dict, if its results depend on it.

    A step is repeated, first with the kept state carried on, then with it reset; on a CPU only, and only if
    something is not built in.

    Raises
    ------
    UserError
        When the second step gives another result although the modules' attributes are restored: the state is
        elsewhere.
    """
    config = inputs.config
    named: list[tuple[Registry[Any], str]] = [
        *((MODEL, name) for name in models_named(config.model)),
        *((CLIENT, name) for name in parts(config.client)),
        *((OBJECTIVE, config.objective), (LOSS, config.loss), (PROBLEM, config.problem)),
    ]
    own = [(registry.key, name) for registry, name in named if name not in {*registry.names, "auto"}]
    if not own or not inputs.dataset.has_examples or config.device != "cpu" or config.dp == "example":
        return
    for i, name in enumerate(models_named(config.model)):
        model = inputs.initial(i).module
        with contextlib.suppress(_Untried):
            first, kept = _step(inputs, i), vars(model)[KEPT].changed()
            second = None  # such as a kept tensor of an evaluation, which has no gradient
            with carrying_on(model), contextlib.suppress(_Untried):
                second = _step(inputs, i)
            if first == second:
                continue
            begin_anew(model)
            if first != _step(inputs, i):
                (key, value), *others = own
                among = "".join(f" with {also} {other!r}" for also, other in others)
                raise UserError(
                    f"{key}: {value!r}{among} gives another result when a step is repeated: it keeps "
                    "something from one client to the next; expected state in register_buffer or in "
                    "attributes of a module"
                )
            yield (
                f"model: {name!r} keeps {' and '.join(kept)} outside its state dict: every client begins "
                "with the first values; a persistent buffer (register_buffer) would be averaged, or stay "
                "at home"
            )
        begin_anew(model)


class _Untried(Exception):
    """The step cannot be tried here: the run itself will report what is wrong."""


def _step(inputs: RunInputs, partition_id: int) -> object:
    """Train on a few examples, and evaluate; return everything that results."""
    task, config = task_of(inputs, partition_id), inputs.config
    few = replace(task.train, rows=task.train.rows[:EXAMPLES])
    training = LocalTraining(batch_size=EXAMPLES)
    task = replace(task, train=few, evaluation={TEST: few}, training=training, private=None, units=None)
    store = ContextStore()
    with _generators_kept(), _as_untried():
        client = CLIENT.find(config.client)(task, Memory(store))
        received = Received({name: np.array(task.initial[name]) for name in client.shared_names}, {})
        settings: dict[str, Any] = {SERVER_ROUND: 1, CLIENT_LR: config.client_lr, EVAL_SPLITS: TEST}
        result = client.fit(received, {**config.client_settings, **settings})
        update = result if isinstance(result, Update) else Update(*result)  # a user's may be a plain triple
        client.memory.commit()
        sent = [np.asarray(array) for array in update.arrays]
        return comparable([sent, dict(update.metrics), dict(update.records), store.groups()])


@contextlib.contextmanager
def _as_untried() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise _Untried from error


@contextlib.contextmanager
def _generators_kept() -> Iterator[None]:
    """Restore all random generators afterwards: drawing from them is not state of the code."""
    before, of_numpy, of_torch = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(before)
        np.random.set_state(of_numpy)
        torch.set_rng_state(of_torch)
