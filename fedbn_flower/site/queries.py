"""The queries that a node answers in addition to train and evaluate messages.

A SuperNode starts a process for every message. So the code of an answer is imported only when its query
arrives, in the node's worker if it has one.
"""

from collections.abc import Callable
from functools import partial
from pkgutil import resolve_name

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from .. import annexes

Answers = Callable[[Message, Context], Message]

QUERIES = {
    "partition_id": "core.partition_id:answer_partition_id",
    "moments": "site.answers:answer_moments",
    "counts": "site.answers:answer_counts",
    "names": "site.answers:answer_names",
    "sizes": "site.answers:answer_sizes",
    "complete": "site.memory_folder:answer_complete",
}
"""The handler of each query, as ``module:function`` in fedbn_flower."""


def answered(message: Message, context: Context, here: Answers) -> Message:
    """Answer a message by ``here``, wrapped in the doors (middleware) that annexes bring.

    A door answers the message itself, or passes it on to its ``here``. Innermost are those that the site's
    owner requires by a key of the node config (``owners-doors``): a door of an annex may send the message to
    another process, and each message has to pass the owner's exactly once, in the process that answers it.

    Raises
    ------
    UserError
        When the owner requires a door whose annex is not installed.
    Exception
        Whatever the client or a door raises.
    """
    for key in annexes.names_of("owners-doors"):
        if key in context.node_config:
            here = partial(annexes.load("owners-doors", key), here=here)
    for door in annexes.brought("doors").values():
        here = partial(door, here=here)
    return here(message, context)


def answer_queries(app: ClientApp) -> None:
    """Register every query with an app."""
    for query, place in QUERIES.items():
        app.query(query)(partial(_answer, place))


def _answer(place: str, message: Message, context: Context) -> Message:
    return answered(message, context, partial(_answer_here, place))


def _answer_here(place: str, message: Message, context: Context) -> Message:
    answer: Message = resolve_name(f"fedbn_flower.{place}")(message, context)
    return answer
