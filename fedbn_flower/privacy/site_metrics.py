"""Metrics that a site pays for: means over its held-out examples, clipped, with noise.

An example has k numbers in [0, 1]: the loss, capped at `LOSS_CAP`, over that cap, and the problem's scores.
With ``dp`` example their sum moves by sqrt(k) at most when one is left out, and their number n is public:
what leaves is ``(sum + N(0, k z^2 I)) / n``. With ``dp`` local the means themselves move by sqrt(k) at most,
whatever the data are: ``mean + N(0, k z^2 I)``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients import Examples, FedAvgClient, Problem
from fedbn_flower.clients.modules.lazy_torch import torch
from fedbn_flower.clients.modules.rng import seeded
from fedbn_flower.clients.problems.evaluation import evaluation_batch

from ..core.ground.columns import TEST, VALIDATION
from .accounts import local_noise_for
from .keys import Key, Purpose
from .private_run import NO_SEED, PrivateRun

LOSS_CAP = 5.0
"""The greatest loss of an example that counts."""
LOSS = "loss"
PURPOSES: Mapping[str, Purpose] = {VALIDATION: "metrics val", TEST: "metrics test"}


def planned(config: PrivateRun) -> int:
    """Return on how many splits a client evaluates in a run, counted once a round."""
    rounds = -(-config.rounds // config.evaluate_every)
    return rounds + len(config.held_out_splits(final=True).split(",")) - 1


def evaluations_until(config: PrivateRun, server_round: int) -> int:
    """Return how many of `planned` are done after a round, which may be the last."""
    if server_round >= config.rounds:
        return planned(config)
    return server_round // config.evaluate_every


def metrics_noise(config: PrivateRun) -> float:
    """Return z of a client's metrics, such that all of a run have epsilon ``dp-metrics``."""
    return local_noise_for(config.dp_metrics, planned(config), config.dp_delta) / 2


def noisy_metrics(
    config: PrivateRun, client: FedAvgClient, split: str, server_round: int
) -> dict[str, float]:
    """Return the metrics of the loaded model on a split, with noise, each in its range.

    Parameters
    ----------
    config : PrivateRun
        With ``dp-metrics``.
    client : FedAvgClient
        With the model loaded.
    split : str
        A held-out split.
    server_round : int
        The round. Without ``dp-seed`` the noise is new each time.
    """
    names = released_names(client.task.problem)
    values = values_of_examples(client, client.task.evaluation[split])
    deviation = metrics_noise(config) * math.sqrt(len(names))
    if config.dp == "example":
        deviation /= max(1, len(values))
    secret = config.dp_seed == NO_SEED
    key = Key() if secret else Key.of_seed(config.dp_seed).of_client(client.task.seed[-1])
    noise = key.numbers(server_round, 1, PURPOSES[split]).normal(len(names))
    means = values.sum(0) / max(1, len(values))
    noisy = np.clip(means + deviation * noise, 0.0, 1.0)
    caps = [LOSS_CAP if name == LOSS else 1.0 for name in names]
    return dict(zip(names, (noisy * caps).tolist(), strict=True))


def released_names(problem: Problem) -> tuple[str, ...]:
    """Return the metrics that leave a client: the loss, and what lies in [0, 1] for each example."""
    return tuple(name for name in problem.metrics if name == LOSS or problem.ranges.get(name) == (0.0, 1.0))


def values_of_examples(client: FedAvgClient, examples: Examples) -> NDArray[np.float64]:
    """Return the values of `released_names` in [0, 1] by example, (n, k); one that is not finite is 1."""
    problem, model = client.task.problem, client.task.model
    names, found = released_names(problem), []
    model.eval()
    batches = list(examples.batches(evaluation_batch(examples, problem)))
    with torch.inference_mode(), seeded(0):
        for inputs, targets in examples.load(batches):
            output = problem.outputs_of(model, inputs)
            values = {LOSS: problem.loss(output, targets, "none") / LOSS_CAP}
            counts = problem.predictions(targets)
            values |= {name: score / counts for name, score in problem.scores(output, targets).items()}
            found.append(np.stack([values[name].double().cpu().numpy() for name in names], axis=1))
    table = np.concatenate(found or [np.zeros((0, len(names)))])
    return np.asarray(np.clip(np.nan_to_num(table, nan=1.0), 0.0, 1.0), np.float64)
