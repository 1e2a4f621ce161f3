"""Derive from a configuration who takes part in which round, and the simulated time of the rounds."""

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Protocol

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict

from fedbn_flower.strategies.messages.npy import array_bytes, encoded_bytes

from .. import annexes
from ..config.keys import RUN_KEYS
from ..config.run_config import RunConfig
from ..core.ground.wire import ARRAYS
from ..extensions.compression import model_to_send
from ..extensions.devices import NONE
from ..job.inputs import RunInputs, inputs_of
from ..job.participation import (
    Clock,
    SeededParticipation,
    availability,
    held_out_clients,
    rates_of,
    share_of_work,
)
from ..names import COMPRESS, STRATEGY, as_user_error


def participation(config: RunConfig) -> SeededParticipation:
    """Return who takes part in which round.

    Raises
    ------
    UserError
        If ``availability`` names a file that cannot be used.
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


BY_PARTITION = ("holdout-clients", "availability", "selection", "devices", "reference", "attack")
"""Keys whose effect depends on partition ids, unless they have their default."""


def goes_by_partition(inputs: RunInputs) -> str:
    """Return a given key whose effect depends on partition ids; empty if there is none."""
    config = inputs.config
    values = config.to_user_config()
    keys = [key for key in BY_PARTITION if values[key] != RUN_KEYS[key].default]
    cyclic = ["dp-sampling cyclic"] if config.dp == "client" and config.dp_sampling == "cyclic" else []
    several = ["strategy"] if STRATEGY.find(config.strategy).keeps_models else []
    tested = ["eval-data"] if inputs.untested else []
    return next(iter([*keys, *cyclic, *several, *tested]), "")


def clock_of(inputs: RunInputs) -> Clock | None:
    """Return the clock of a run whose ``devices`` are named.

    Raises
    ------
    UserError
        If they are a file that cannot be used.
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


class Buffers(Protocol):
    """The rounds of an asynchronous protocol, each of which ends when a buffer of answers is full."""

    versions: dict[int, ArrayRecord]
    """Older versions of the model, which a resumed run needs."""
    ends: Callable[[int], float] | None
    """Returns the end of a round on the simulated clock; None on the real one."""


def buffers_of(inputs: RunInputs, clock: Clock | None) -> Buffers | None:
    """Return the buffers of an asynchronous protocol, on the simulated or the real clock; else None."""
    if not inputs.config.asynchronous:
        return None
    buffers: Buffers = annexes.load("buffers", "protocol")(inputs, clock)
    return buffers


def end_of_round(clock: Clock | None, buffers: Buffers | None) -> Callable[[int, float], float] | None:
    """Return a function from a round's number and start to its end; None without a clock."""
    if buffers and (ends := buffers.ends):
        return lambda server_round, began: ends(server_round)
    return (lambda server_round, began: began + clock.round_seconds) if clock else None


def train_bytes(inputs: RunInputs) -> tuple[int, int]:
    """Return the bytes of the arrays in a train message and in its answer, before any is sent.

    Prototypes and struggle scores, whose size depends on the clients' classes, are not counted.
    """
    config, (model, _) = inputs.config, inputs.model()
    entries = {name: inputs.initial().entries[name] for name in inputs.split.shared}
    sizes = {name: encoded_bytes(array) for name, array in entries.items()}
    with_extras = STRATEGY.find(config.strategy).extras_like_parameters
    extras = sum(sizes[name] for name in inputs.stepped_names) if with_extras else 0
    model_sent = model_to_send(ArrayRecord({n: Array(a) for n, a in entries.items()}), inputs.rounded_names)
    down, up = array_bytes(RecordDict({ARRAYS: model_sent})) + extras, sum(sizes.values()) + extras
    if STRATEGY.find(config.strategy).clients_choose:
        down *= config.settings_for(STRATEGY.find(config.strategy))["clusters"]
    if codec := config.codec:
        names = [name for name, p in model.named_parameters() if p.requires_grad and name in entries]
        coded = {name: entries[name] for name in names if entries[name].dtype.kind == "f"}
        codec = codec.of_shapes(array.shape for array in coded.values())
        with as_user_error(COMPRESS.key, config.compress):
            codes = codec.layout(sum(array.size for array in coded.values())).values()
        up += sum(encoded_bytes(np.empty(*code)) for code in codes) - sum(sizes[name] for name in coded)
    return down, up
