"""The door of a SuperNode's client: the node's worker answers a message, or else this process does.

Nothing here imports torch, or what trains: Flower starts this process for every message.
"""

import logging

from flwr.app import Context, Message

from ..core.partition_id import WARM, check_node_config
from ..site.queries import Answers
from .node import node_process

LOGGER = logging.getLogger("flwr.fedbn")


def answered(message: Message, context: Context, here: Answers) -> Message:
    """Answer a message: by the node's worker under a SuperNode, otherwise by ``here``.

    Where no worker can be started, one line says why, and ``here`` answers.

    Raises
    ------
    UserError
        When the node config is not allowed.
    Exception
        What the client raised, wherever it did.
    WorkerLost
        When the worker ended twice before it had answered.
    """
    process = node_process()
    if process is None:
        return here(message, context)
    check_node_config(context)
    if not context.node_config.get(WARM, True):
        return here(message, context)
    try:
        from .workers import ask  # not on every system

        answer = ask(message, context, process)
    except (ImportError, OSError) as error:  # NoWorker, or a folder in which nothing can be locked
        LOGGER.warning("%s: %s; this message is answered without a worker", WARM, error)
        return here(message, context)
    context.state = answer.state
    if answer.failure is not None:
        raise answer.failure
    assert answer.reply is not None
    return answer.reply
