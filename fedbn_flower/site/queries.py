"""What a node tells when it is asked, beside training and evaluating.

A SuperNode starts a process for every message, so that an answer is imported by the message that asks for it,
in the node's worker if it has one.
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
"""What answers each query, ``module:function`` in fedbn_flower."""


def answered(message: Message, context: Context, here: Answers) -> Message:
    """Answer a message through the doors that annexes bring, else by ``here``, as each door may, too.

    Innermost are those that the site's owner demands by a key of the node config (``owners-doors``): so each
    message passes them once, in the process that answers it.

    Raises
    ------
    UserError
        When the owner demands a door whose annex is not there.
    Exception
        What the client raised, or a door.
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
