"""How many clients train at once, in lockstep."""

import logging

import numpy as np
from torch import nn

from fedbn_flower.clients.lockstep import why_alone, why_unknown
from fedbn_flower.strategies.aggregation.fold import GROUP

from ..config.registry import CLIENT
from ..core.process_cache import process_cache
from .inputs import RunInputs
from .tasks import task_of

LOGGER = logging.getLogger("flwr.fedbn")
HELD = 2**28  # values of a cohort's examples: a GiB
LITTLE = 2**24  # of a client's weights times its examples: what calling it costs takes longer


def cohort_size(inputs: RunInputs) -> int:
    """How many clients train in lockstep; 1 for one by one. It is logged, with the reason.

    It does not depend on the number of workers, nor does it leave some of them without work when a round
    has few clients.
    """
    reason = why_one_by_one(inputs)
    told = (f"{GROUP} at a time", "in lockstep") if not reason else ("one by one", reason)
    LOGGER.info("clients train %s: %s", *told)
    return 1 if reason else GROUP


@process_cache(maxsize=16)
def why_one_by_one(inputs: RunInputs) -> str:
    """What keeps clients from training in lockstep, in words; empty if nothing does. It takes a trial."""
    config = inputs.config
    if config.fast == "off":
        return "fast is off"
    task, client = task_of(inputs, 0), CLIENT.find(config.client)
    sizes = [len(rows) for rows in inputs.partitions.train]
    most, products = max(sizes), np.mean(sizes) * config.local_epochs * _weights(task.model)
    enough = GROUP if products < LITTLE else 2 * GROUP
    if int(config.fraction_train * config.num_training) < enough:
        return f"fewer than {enough} a round"
    if GROUP * task.train.width * most > HELD:
        return "clients have too many examples to be held at once"
    return why_unknown(client, task) or why_alone(client, task, config.messages_for(task.objective))


def _weights(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
