"""What a message may ask beside one training: two answers in one, and a choice among models."""

import logging
from collections.abc import Callable

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict

from fedbn_flower.clients import FedAvgClient
from fedbn_flower.clients.choosing import chosen

from ..core.errors import described
from ..core.ground.wire import ARRAYS, CANDIDATE, CHOSEN, CONFIG, EVALUATED, EVALUATION, FAILED, MODEL, REASON
from ..core.private import with_content

LOGGER = logging.getLogger("flwr.fedbn")
Answers = Callable[[Message, Context], Message]


def answer_both(message: Message, context: Context, evaluate: Answers, train: Answers) -> Message:
    """Return the answer to a train message, with the records of an evaluation if it asks for one too.

    The evaluation comes first: what the client keeps at home is then what the last training left. Each of the
    two can fail without the other.
    """
    asked = message.content.config_records.get(EVALUATION)
    if asked is None:
        return train(message, context)
    content = RecordDict({ARRAYS: message.content[ARRAYS], CONFIG: asked})
    found = _records(evaluate, with_content(message, content, MessageType.EVALUATE), context)
    trained = _records(train, message, context)
    trained.update({f"{EVALUATED}{name}": record for name, record in found.items()})
    return Message(trained, reply_to=message)


def _records(answer: Answers, message: Message, context: Context) -> RecordDict:
    """Return the records of an answer; of a failure its reason."""
    try:
        reply = answer(message, context)
    except Exception as error:  # the other half of the answer is of use
        LOGGER.error("%s: not answered", message.metadata.message_type, exc_info=error)
        return RecordDict({FAILED: ConfigRecord({REASON: described(error)})})
    if reply.has_error():
        return RecordDict({FAILED: ConfigRecord({REASON: str(reply.error.reason)})})
    return reply.content


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
