"""How a round changes the totals of its run."""

import logging
import math
from collections.abc import Mapping
from typing import Any

from flwr.app import MessageType

from fedbn_flower.clients import Problem

from ..config.run_config import RunConfig
from ..records.columns import GLOBAL, POOLED, SIMULATED_SECONDS
from ..records.metrics import deciding
from ..records.run_totals import FLOWER, RunTotals
from .exchange import Exchange
from .participation import Clock
from .participation.asynchronous import Buffers, ScheduledBuffers

LOGGER = logging.getLogger("flwr.fedbn")

PATIENCE, TARGET, BUDGET = "patience", "target", "budget"


def add_round(totals: RunTotals, server_round: int, seconds: float, exchange: Exchange, updates: int) -> None:
    """Add a round's seconds, bytes and used updates, and where its clients ran."""
    place = dict(getattr(exchange.grid, "place", FLOWER))
    last = totals.runtime[-1] if totals.runtime else {}
    if {"from-round": last.get("from-round"), **place} != last:
        totals.runtime.append({"from-round": server_round, **place})
    train, evaluate = exchange.seconds[MessageType.TRAIN], exchange.seconds[MessageType.EVALUATE]
    totals.train_seconds += train
    totals.evaluate_seconds += evaluate
    totals.server_seconds += seconds - train - evaluate
    totals.bytes_sent += exchange.bytes_sent
    totals.bytes_received += exchange.bytes_received
    totals.client_updates += updates


def end_on_clock(
    totals: RunTotals, server_round: int, clock: Clock | None, buffers: Buffers | None
) -> dict[str, float]:
    """Advance the simulated seconds to the end of a round, and note what its target cost if it reached it.

    Returns the column of the simulated seconds; empty without a clock.
    """
    if isinstance(buffers, ScheduledBuffers):
        totals.simulated_seconds = buffers.schedule.buffer(server_round).seconds
    elif clock:
        totals.simulated_seconds += clock.round_seconds
    totals.note_costs(server_round)
    return {SIMULATED_SECONDS: round(totals.simulated_seconds, 3)} if clock else {}


def last_sure_checkpoint(config: RunConfig, server_round: int) -> int:
    """Return the last round whose checkpoint is on the disk by now; a later one may still be on its way."""
    every = config.checkpoint_every or 1
    return max(0, (server_round - 1) // every - 1) * every


def note_evaluation(
    totals: RunTotals,
    config: RunConfig,
    problem: Problem,
    server_round: int,
    means: Mapping[str, float],
    pooled: Mapping[str, float],
    of_global: Mapping[str, Any],
    by: str,
) -> bool:
    """Note an evaluated round; return whether patience has seen none better.

    ``means`` are over clients, ``pooled`` over all their held-out examples, ``of_global`` the global model's.
    ``by`` says which decide; see `deciding`.
    """
    every = {
        **means,
        **{POOLED + name: value for name, value in pooled.items()},
        **{GLOBAL + name: value for name, value in of_global.items()},
    }
    if target := config.target_value:
        metric, wanted = target

        def reached(value: Any) -> bool:
            value = math.nan if value is None else value
            return bool(value >= wanted if metric in problem.higher_is_better else value <= wanted)

        if totals.mean_reached is None and reached(deciding(every, metric, "pooled")):
            totals.mean_reached = server_round
        if totals.global_reached is None and reached(of_global.get(metric)):
            totals.global_reached = server_round
        if config.stop_at_target and reached(deciding(every, metric, by)):
            totals.stopped = TARGET
    value = deciding(every, problem.compared_by, by)
    if not config.patience or value is None or math.isnan(value):
        return False
    higher = problem.compared_by in problem.higher_is_better
    if totals.best is None or (value > totals.best if higher else value < totals.best):
        totals.best, totals.best_round = value, server_round
        return True
    return False


def ends_run(totals: RunTotals, config: RunConfig, server_round: int, spent: bool = False) -> bool:
    """Whether this evaluated round, which has been noted, is to be the last.

    ``spent``: whether the privacy budget is, which a line says if it ends the run early.
    """
    if spent:
        totals.stopped = totals.stopped or BUDGET
        if server_round < config.rounds:
            LOGGER.warning("privacy: budget spent at round %d of %d", server_round, config.rounds)
    if config.patience and server_round - (totals.best_round or 0) >= config.patience:
        totals.stopped = totals.stopped or PATIENCE
    ends = totals.stopped is not None
    if server_round == config.rounds:
        totals.stopped = None
    return ends
