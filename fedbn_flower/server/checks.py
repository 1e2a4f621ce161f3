"""Check what a run's rule is incompatible with, and how many nodes are connected."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from flwr.serverapp import Grid

from fedbn_flower.clients.modules.head import head_entries
from fedbn_flower.strategies import PseudoGradientStrategy, TooFewNodes
from fedbn_flower.strategies.rules.personal import FedAP, FedPAC, layers

from ..core.errors import Conflict, not_allowed
from ..job.inputs import RunInputs
from ..job.rule import first_model
from ..names import CLIENT, STRATEGY
from .exchange import IN_THIS_PROCESS, waits_of


def of_empty_rounds(inputs: RunInputs) -> Iterator[Conflict]:
    """Yield a run in which nothing is shared, or in which nobody evaluates the models to choose from."""
    config = inputs.config
    without_model = STRATEGY.find(config.strategy).goes_without_model or config.reference == "alone"
    if not (inputs.split.shared or without_model):
        fedproto = ", or strategy and objective 'fedproto' with it" if config.client == "alone" else ""
        yield Conflict("client", config.client, f"another one{fedproto}: no entry is left to share")
    if config.tests_each_round and not (config.clients_evaluate or inputs.server_evaluates):
        key, value, allowed = (
            ("patience", config.patience, "0")
            if config.patience
            else ("best", config.best, "'auto'")
            if config.keeps_best
            else ("stop-at-target", True, "false")
        )
        yield Conflict(key, value, f"{allowed} with fraction-evaluate 0: nothing is evaluated")


def of_several_models(inputs: RunInputs) -> Iterator[Conflict]:
    """Yield what handles a single model only, and candidate models that are all identical."""
    config = inputs.config
    rule = STRATEGY.find(config.strategy)
    if not rule.keeps_models:
        return
    with_it = f"with strategy {config.strategy!r}"
    if CLIENT.find(config.client).pooled_by:
        wanted = f"another one {with_it}: it pools the statistics of one model"
        yield Conflict("client", config.client, wanted)
    if issubclass(rule, FedAP):
        yield from _of_statistics(inputs, with_it)
    if issubclass(rule, FedPAC) and head_entries(inputs.model()[0]).isdisjoint(inputs.split.shared):
        wanted = f"what leaves the head to train {with_it}, which mixes heads"
        yield Conflict("freeze" if config.freeze else "train", config.freeze or config.train, wanted)
    if not rule.clients_choose:
        return
    further, first = first_model(inputs, 1), inputs.initial().entries
    if all(np.array_equal(first[name], further[name]) for name in inputs.stepped_names):
        why = f"{with_it}: its models have to differ"
        if config.init:
            yield Conflict("init", config.init, f"weights that leave some that train new, {why}")
        yield Conflict("model", config.model, f"one whose weights are drawn when it is made, {why}")


def _of_statistics(inputs: RunInputs, with_it: str) -> Iterator[Conflict]:
    """Yield a model without BatchNorm, and a client that does not share its statistics."""
    config = inputs.config
    if not (found := layers(inputs.initial().entries)):
        wanted = f"one with BatchNorm {with_it}, which compares clients by its statistics"
        yield Conflict("model", config.model, wanted)
    if len(layers(dict.fromkeys(inputs.split.shared))) < len(found):
        wanted = f"one that shares the statistics of BatchNorm {with_it}, which compares clients by these"
        yield Conflict("client", config.client, wanted)


REGISTERING = 5.0
"""Seconds within which Flower registers another simulated node, if there is one."""


def check_nodes(strategy: PseudoGradientStrategy, grid: Grid, expected: int, concurrency: int = 0) -> None:
    """Wait for the run's nodes; refuse more than ``num-clients`` of them.

    With an asynchronous protocol only ``concurrency`` nodes are awaited: others may connect later.

    Raises
    ------
    UserError
        If there are more, or if Flower simulates fewer.
    TooFewNodes
        If too few connect in time.
    """
    reason = "concurrency" if concurrency else "num-clients"
    if (wanted := concurrency or expected) > (found := _simulated(grid, wanted)):
        as_many = f"--federation-config num-supernodes={wanted}"
        raise not_allowed(reason, wanted, f"{found}, the number of simulated SuperNodes; or give {as_many}")
    try:
        nodes = strategy.node_directory.connected(grid, wanted, reason)
    except TooFewNodes as error:
        why = "the log of a SuperNode that is missing says why, such as a clock that is off"
        raise TooFewNodes(f"{error}; {why}") from None
    if len(nodes) > expected:
        raise not_allowed("num-clients", expected, f"{len(nodes)}, the number of SuperNodes (num-supernodes)")


def _simulated(grid: Grid, wanted: int) -> int:
    """Return how many nodes Flower simulates, at most ``wanted``: they register while the server starts.

    For real nodes it is ``wanted``, as they may connect at any time.
    """
    if waits_of(grid) != IN_THIS_PROCESS:
        return wanted
    before, found = -1, len(list(grid.get_node_ids()))
    while before < found < wanted:
        time.sleep(REGISTERING)
        before, found = found, len(list(grid.get_node_ids()))
    return found
