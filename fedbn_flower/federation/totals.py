"""How a round changes the totals of its run."""

from flwr.app import MessageType

from ..config.run_config import RunConfig
from ..records.columns import SIMULATED_SECONDS
from ..records.run_totals import FLOWER, RunTotals
from .exchange import Exchange
from .participation import Clock
from .participation.asynchronous import Buffers, ScheduledBuffers


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
    """Advance the simulated seconds to the end of a round, and return their column; empty without a clock."""
    if isinstance(buffers, ScheduledBuffers):
        totals.simulated_seconds = buffers.schedule.buffer(server_round).seconds
    elif clock:
        totals.simulated_seconds += clock.round_seconds
    return {SIMULATED_SECONDS: round(totals.simulated_seconds, 3)} if clock else {}


def last_sure_checkpoint(config: RunConfig, server_round: int) -> int:
    """Return the last round whose checkpoint is on the disk by now; a later one may still be on its way."""
    every = config.checkpoint_every or 1
    return max(0, (server_round - 1) // every - 1) * every
