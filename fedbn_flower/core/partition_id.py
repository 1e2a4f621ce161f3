"""Which partition a node holds.

Nothing here imports torch: a SuperNode starts a process for every message, and that import would be most of
what it does for a number.
"""

import hashlib
from difflib import get_close_matches

from flwr.app import ConfigRecord, Context, Message, RecordDict

from .errors import UserError, check_plain, not_allowed
from .files import path_of
from .ground.wire import PARTITION, PARTITION_ID
from .process_cache import process_cache

WARM = "warm"
"""The key of a node that says whether a worker stays between messages."""
IDLE_SECONDS = "idle-seconds"
"""The key of a node that says after how long without a message its worker ends."""
USUAL_IDLE_SECONDS, MOST_IDLE_SECONDS = 600, 86400
NODE_KEYS = (
    "partition-id", "data-path", "cache-dir", "state-dir", "init", "predictions",
    WARM, IDLE_SECONDS, "secagg-required", "secagg-min", "secagg-key", "secagg-partners", "dp-required",
    "dp-max-epsilon", "dp-max-delta", "dp-min-noise", "dp-max-clip", "dp-required-unit", "studies", "audit",
)  # fmt: skip
"""Those that are read. A node has any others besides, for other apps."""
MISSPELT = 0.87
"""How similar to one of them a key is that is one misspelt: more than Flower's own dataset-path is."""


def partition_id_of(context: Context) -> int | None:
    """The node's ``partition-id``; a node with a ``data-path`` may leave it out.

    Raises
    ------
    UserError
        When it is not a whole number, or missing from a node without a ``data-path``; as `check_node_config`.
    """
    check_node_config(context)
    partition_id = context.node_config.get("partition-id")
    if type(partition_id) is int and partition_id >= 0:
        return partition_id
    if partition_id is None and "data-path" in context.node_config:
        return None
    raise not_allowed("partition-id", partition_id, "a whole number >= 0 in the node config (or a data-path)")


def check_node_config(context: Context) -> None:
    """Refuse paths of a node that no file can have, misspelt keys, and settings of its worker that are not
    allowed.

    Raises
    ------
    UserError
        Names the key.
    """
    config = context.node_config
    for key, value in config.items():
        check_plain(key, value)
        meant = _meant(key)
        if meant and meant not in config:
            raise UserError(f"node-config: unknown name {key!r} (did you mean {meant!r}?)")
    if type(warm := config.get(WARM, True)) is not bool:
        raise not_allowed(WARM, warm, "true or false (in the node config)")
    idle_seconds(context)


@process_cache(maxsize=64)
def _meant(key: str) -> str:
    """Return which of `NODE_KEYS` a key is or resembles; empty where it is another app's."""
    words = key.strip().lower().replace("_", "-")
    return next(iter(get_close_matches(words, NODE_KEYS, n=1, cutoff=MISSPELT)), "")


def idle_seconds(context: Context) -> float:
    """Return after how many seconds without a message a node's worker ends.

    Raises
    ------
    UserError
        When it is not a number from 1 to `MOST_IDLE_SECONDS`.
    """
    seconds = context.node_config.get(IDLE_SECONDS, USUAL_IDLE_SECONDS)
    if type(seconds) in (int, float) and 1 <= float(seconds) <= MOST_IDLE_SECONDS:
        return float(seconds)
    allowed = f"a number of seconds from 1 to {MOST_IDLE_SECONDS} (in the node config)"
    raise not_allowed(IDLE_SECONDS, seconds, allowed)


def name_of_data(data_path: str) -> str:
    """Return what the files of a client are called that has data of its own in this path."""
    resolved = str(path_of(data_path).resolve())
    return f"data-{hashlib.sha256(resolved.encode()).hexdigest()[:12]}"


def answer_partition_id(message: Message, context: Context) -> Message:
    """Tell which partition this node holds, so that the strategy can order nodes by it."""
    partition_id = partition_id_of(context)
    record = ConfigRecord({} if partition_id is None else {PARTITION_ID: partition_id})
    return Message(RecordDict({PARTITION: record}), reply_to=message)
