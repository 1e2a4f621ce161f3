"""How many clients a process trains at once, in lockstep."""

from __future__ import annotations

import logging

import numpy as np

from fedbn_flower.clients.modules.lazy_torch import nn
from fedbn_flower.strategies.aggregation.fold import GROUP

from ..core.process_cache import process_cache
from ..job.inputs import RunInputs
from ..job.tasks import task_of
from ..names import CLIENT, STRATEGY

LOGGER = logging.getLogger("flwr.fedbn")
MAX_VALUES = 2**28  # of a cohort's examples: a GiB of float32
LITTLE_WORK = 2**24  # weights times examples of a client, below which the calls cost more than the products


def cohort_size(inputs: RunInputs) -> int:
    """Return how many clients train in lockstep, or 1; log it, with the reason.

    Where a class says what is not true, it is a warning.

    The size does not depend on the number of workers, so the result does not either. Rounds of few clients
    train one by one, so that every worker has work.
    """
    from fedbn_flower.clients.lockstep import BROKEN  # imports PyTorch

    reason = why_one_by_one(inputs)
    how, why = ("one by one", reason) if reason else (f"{GROUP} at a time", "in lockstep")
    level = logging.WARNING if reason.startswith(BROKEN) else logging.INFO
    LOGGER.log(level, "clients train %s: %s", how, why)
    return 1 if reason else GROUP


@process_cache(maxsize=16)
def why_one_by_one(inputs: RunInputs) -> str:
    """Return why clients cannot train in lockstep, or an empty text; it tries a few steps both ways."""
    from fedbn_flower.clients import lockstep  # imports PyTorch

    config = inputs.config
    if config.fast == "off":
        return "fast is off"
    if STRATEGY.find(config.strategy).clients_choose:
        return "each chooses its model"
    task, client = task_of(inputs, 0), CLIENT.find(config.client)
    sizes = inputs.partitions.train.sizes
    most, products = int(sizes.max()), np.mean(sizes) * config.local_epochs * _weights(task.model)
    enough = GROUP if products < LITTLE_WORK else 2 * GROUP
    buffered = config.asynchronous
    if (buffered.size if buffered else int(config.fraction_train * config.num_training)) < enough:
        return f"fewer than {enough} a round"
    if GROUP * task.train.width * most > MAX_VALUES:
        return "clients have too many examples to be held at once"
    settings = config.messages_for(task.objective)
    return (
        lockstep.reason_not_supported(client, task)
        or lockstep.reason_not_equivalent(client, task, settings)
        or lockstep.reason_of_batches(client, task, settings, sizes, GROUP)
    )


def _weights(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
