"""A SuperNode's ``state-dir``: how a client's files are called there, and what stays once a run is complete.

Nothing here imports torch: that would be most of what a SuperNode does to remove a file.
"""

import logging

from flwr.app import Context, Message, RecordDict

from ..config.making import config_at_site
from ..core.files import path_of
from ..core.ground.wire import CONFIG, SERVER_ROUND
from ..core.partition_id import name_of_data, partition_id_of
from .memory_folder import MemoryFolder, client_name, run_of
from .privacy import refusals_in_one_line

LOGGER = logging.getLogger("flwr.fedbn")


def name_of(context: Context) -> str:
    """Return what the files of a node's client are called."""
    partition_id = partition_id_of(context)
    if partition_id is not None:
        return client_name(partition_id)
    return name_of_data(str(context.node_config["data-path"]))


@refusals_in_one_line
def answer_complete(message: Message, context: Context) -> Message:
    """Remove the memories that no run can need, since the server says that this one is complete.

    Raises
    ------
    ValueError
        When the run's name or its last round is malformed.
    """
    asked = message.content.config_records[CONFIG]
    run, last_round = run_of(asked), asked.get(SERVER_ROUND)
    if type(last_round) is not int or last_round < 0:
        raise ValueError(f"state-dir: the server sent round {last_round!r}; expected a whole number >= 0")
    if (state_dir := context.node_config.get("state-dir")) is not None:
        name = config_at_site(context).memory_name
        folder = MemoryFolder(path_of(str(state_dir)) / name)
        removed = folder.note_complete(name_of(context), run, last_round)
        LOGGER.info("client memory: run %s is complete; files removed: %d", run, removed)
    return Message(RecordDict(), reply_to=message)
