"""How a round changes the totals of its run."""

from flwr.app import MessageType

from ..config.run_config import RunConfig
from ..extensions.base import Exchange
from ..records.checkpoint import FLOWER, RunTotals


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


def last_sure_checkpoint(config: RunConfig, server_round: int) -> int:
    """Return the last round whose checkpoint is on the disk by now; a later one may still be on its way."""
    every = config.checkpoint_every or 1
    return max(0, (server_round - 1) // every - 1) * every
