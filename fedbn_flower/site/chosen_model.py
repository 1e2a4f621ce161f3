"""A message with several models: the client takes one of them, and its answer says which."""

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedbn_flower.clients import FedAvgClient
from fedbn_flower.clients.choosing import chosen

from ..core.ground.wire import ARRAYS, CANDIDATE, CHOSEN, MODEL
from ..core.private import with_content


def with_chosen_model(client: FedAvgClient, message: Message) -> tuple[Message, str]:
    """Return a message with the model that the client chooses, and its name; empty if there is no choice.

    Raises
    ------
    FloatingPointError
        As `chosen`.
    """
    models = {
        name.removeprefix(CANDIDATE): record
        for name, record in message.content.items()
        if name.startswith(CANDIDATE) and isinstance(record, ArrayRecord)
    }
    if not models:
        return message, ""
    arrays = {name: {n: a.numpy() for n, a in record.items()} for name, record in models.items()}
    name = chosen(client, arrays)
    others = {n: record for n, record in message.content.items() if not n.startswith(CANDIDATE)}
    return with_content(message, RecordDict({ARRAYS: models[name], **others})), name


def answer_of_choice(reply: Message, name: str) -> Message:
    """Return the reply to such a message, which says which model the client chose."""
    if name:
        reply.content[CHOSEN] = ConfigRecord({MODEL: name})
    return reply
