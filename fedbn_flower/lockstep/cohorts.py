"""How many clients a process trains at once, in lockstep."""

import numpy as np
from torch import nn

from fedbn_flower.clients.problems.evaluation import EVALUATION_BATCH
from fedbn_flower.clients.training import LocalTask
from fedbn_flower.strategies.aggregation.fold import GROUP

from ..core.process_cache import process_cache
from ..job.inputs import RunInputs
from ..job.tasks import task_of
from ..names import CLIENT, STRATEGY
from ..site.cohorts import LOGGER, Cohort, Evaluate
from .equivalence import BROKEN, reason_not_equivalent, reason_of_batches
from .evaluate import evaluate_in_lockstep, reason_not_evaluated
from .stacked_modules import takes_stacked_layers
from .support import reason_not_supported
from .train import fit_in_lockstep

MAX_VALUES = 2**28  # of a cohort's examples: a GiB of float32
LITTLE_WORK = 2**24  # weights times examples of a client, below which the calls cost more than the products
MUCH_WORK = 2**28  # weights times examples of a batch, above which a GPU takes longer by vmap than one by one


@process_cache(maxsize=16)
def cohort_of(inputs: RunInputs) -> Cohort:
    """Return how many clients train in lockstep, or 1, with the reason; it tries a few steps both ways.

    The size does not depend on the number of workers, so the result does not either. Rounds of few clients
    train one by one, so that every worker has work.
    """
    if reason := _why_one_by_one(inputs):
        return Cohort(1, reason, is_wrong=reason.startswith(BROKEN))
    return Cohort(GROUP, "in lockstep", fit_in_lockstep)


@process_cache(maxsize=16)
def evaluate_of(inputs: RunInputs) -> Evaluate | None:
    """Return what evaluates cohorts in lockstep; None where clients are evaluated one by one.

    On a processor metrics keep their bits, unless the run asks for all that can be at once.
    """
    config = inputs.config
    if (config.device == "cpu" and config.fast != "always") or cohort_of(inputs).size == 1:
        return None
    task = task_of(inputs, 0)
    if GROUP * EVALUATION_BATCH * task.train.width > MAX_VALUES:
        why = "clients have too many examples to be held at once"
    else:
        why = reason_not_evaluated(task)
    LOGGER.info("clients are evaluated %s", f"one by one: {why}" if why else f"{GROUP} at a time")
    return None if why else evaluate_in_lockstep


def _why_one_by_one(inputs: RunInputs) -> str:
    """Return why clients cannot train in lockstep, or an empty text."""
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
    everywhere = config.fast == "always"
    a_round = buffered.size if buffered else int(config.fraction_train * config.num_training)
    if a_round < enough and not everywhere:
        return f"fewer than {enough} a round"
    if GROUP * task.train.width * most > MAX_VALUES:
        return "clients have too many examples to be held at once"
    if _takes_longer(task):
        return "so large a network is quicker so on a GPU"
    settings = config.messages_for(task.objective)
    return (
        reason_not_supported(client, task, everywhere)
        or reason_not_equivalent(client, task, settings)
        or reason_of_batches(client, task, settings, sizes, GROUP)
    )


def _takes_longer(task: LocalTask) -> bool:
    """Whether a network without stacked layers does too much in a step to gain by being mapped on a GPU."""
    batch = task.training.batch_size or len(task.train)
    much = _weights(task.model) * batch > MUCH_WORK
    return task.train.device != "cpu" and much and not takes_stacked_layers(task.model)


def _weights(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
