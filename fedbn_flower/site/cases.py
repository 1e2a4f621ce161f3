"""The held-out cases of a client: a simulated one sends them, a site may write them to its ``state-dir``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, Message

from fedbn_flower.strategies.messages.npy import encoded

from ..config.run_config import RunConfig
from ..core.errors import not_allowed, os_errors_as_user_errors
from ..core.files import ONLY_OWNER, path_of, write_atomically
from ..core.ground.wire import CASES, CONFIG
from ..core.partition_id import partition_id_of
from ..job.cases import case_parts
from ..records.cases import predictions_file
from .inputs import inputs_at
from .memory_folder import name_of, run_of

LOGGER = logging.getLogger("flwr.fedbn")

KEY, STATE_DIR = "predictions", "state-dir"
FOLDER = "predictions"
"""The folder in a ``state-dir``, with a subfolder for each run."""
ONLY_OWNERS = 0o700
OF_SIMULATION = frozenset({"partition-id", "num-partitions"})
"""The keys in the node config of a simulated node."""


class SimulatedContext(Context):
    """The Context of a node of one of our own Grids: its messages never leave this program."""


def is_simulated(context: Context) -> bool:
    """Return whether a client is simulated, and so may send its cases. No message can claim it."""
    return isinstance(context, SimulatedContext) and context.node_config.keys() == OF_SIMULATION


def allows_cases(context: Context, config: RunConfig) -> bool:
    """Return whether a client's cases may be kept, at the server or at the site.

    Raises
    ------
    UserError
        When the node config's value is not allowed.
    """
    given = context.node_config.get(KEY, False)
    if not isinstance(given, bool):
        raise not_allowed(KEY, given, "true or false in the node config")
    if given and STATE_DIR not in context.node_config:
        raise not_allowed(KEY, given, "false in a node config without a state-dir to write them to")
    return (given or is_simulated(context)) and config.dp == "none"


def settled(cases: object, message: Message, context: Context, config: RunConfig) -> dict[str, ArrayRecord]:
    """Return the record of a simulated client's cases; at a site write them to a file, and return none.

    Raises
    ------
    UserError
        When the file cannot be written.
    ValueError
        When the run's name in the message is malformed.
    """
    if not isinstance(cases, Mapping):
        return {}
    if is_simulated(context):
        return {CASES: ArrayRecord({name: encoded(array) for name, array in cases.items()})}
    asked = message.content.config_records[CONFIG]
    path = _path(context, asked)
    inputs = inputs_at(config, context.node_config)
    site = partition_id_of(context)
    partition, name = (-1, name_of(context)) if site is None else (site, str(site))
    parts = case_parts({partition: cases}, {partition: name}, inputs, str(asked[CASES]))
    content = predictions_file(*parts)
    with os_errors_as_user_errors(STATE_DIR, f"write to {str(path)!r}"):
        path.parent.mkdir(mode=ONLY_OWNERS, parents=True, exist_ok=True)
        write_atomically(path, content, ONLY_OWNER)
    LOGGER.info("predictions of %d held-out cases stay here: %s", len(cases["rows"]), path)
    return {}


def _path(context: Context, asked: ConfigRecord) -> Path:
    return (
        path_of(str(context.node_config[STATE_DIR])) / FOLDER / run_of(asked) / f"{name_of(context)}.parquet"
    )
