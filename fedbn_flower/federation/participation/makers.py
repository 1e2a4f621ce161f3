"""Make what a run needs to know who takes part in which round, and when: of its configuration."""

from functools import partial
from math import inf

import numpy as np

from ...config.keys import RUN_KEYS
from ...config.keys.devices import NONE
from ...config.run_config import RunConfig
from ..exchange import train_bytes
from ..inputs import RunInputs, inputs_of
from .arrivals import ArrivingBuffers
from .asynchronous import Buffers, Schedule, ScheduledBuffers
from .clock import Clock, rates_of
from .seeded import SeededParticipation, availability, held_out_clients, share_of_work


def participation(config: RunConfig) -> SeededParticipation:
    """Return who takes part in which round.

    Raises
    ------
    UserError
        When ``availability`` names a file that cannot be used.
    """
    count, named = config.holdout_clients, config.left_out
    held_out = held_out_clients(config.seed, config.num_clients, count, named)
    return SeededParticipation(
        config.seed,
        config.dropout,
        config.stragglers if config.drop_stragglers else 0.0,
        availability(config.availability, config.seed, config.num_clients),
        min(set(range(config.num_clients)) - held_out) if config.reference == "pooled" else None,
        held_out,
        config.over_select,
    )


BY_PARTITION = ("holdout-clients", "availability", "selection", "devices", "reference")
"""The keys that, if they are not the default, say of which partitions a run is, or when each takes part."""


def goes_by_partition(config: RunConfig) -> str:
    """Return the key of this run that goes by partition; empty if there is none."""
    values = config.to_user_config()
    keys = [key for key in BY_PARTITION if values[key] != RUN_KEYS[key].default]
    cyclic = ["dp-sampling cyclic"] if config.dp == "client" and config.dp_sampling == "cyclic" else []
    return next(iter([*keys, *cyclic]), "")


def clock_of(inputs: RunInputs) -> Clock | None:
    """Return the clock of a run whose ``devices`` are named.

    Raises
    ------
    UserError
        When they are named by a file that cannot be used.
    """
    config = inputs.config
    if config.devices == NONE:
        return None

    def bytes_in(server_round: int) -> tuple[int, int]:
        return train_bytes(inputs_of(config.at_round(server_round)))

    straggle = config.stragglers and not config.drop_stragglers
    return Clock(
        rates_of(config.devices, config.seed, config.num_clients),
        inputs.partitions.train.sizes,
        config.local_epochs,
        partial(share_of_work, config.seed, config.stragglers) if straggle else None,
        bytes_in,
        config.round_deadline or inf,
    )


def buffers_of(inputs: RunInputs, clock: Clock | None) -> Buffers | None:
    """Return the rounds of an asynchronous protocol, on the run's clock or the real one; else None."""
    config = inputs.config
    if not (protocol := config.asynchronous):
        return None
    if not clock:
        return ArrivingBuffers(protocol, config.seed, config.concurrency)
    everybody = np.arange(config.num_clients)
    clients = sorted(set(everybody.tolist()) - inputs.held_out_clients)
    schedule = Schedule(config.seed, clock.seconds(1, everybody), clients, config.concurrency, protocol.size)
    return ScheduledBuffers(protocol, schedule)
