"""One answer of a client to two questions: to evaluate the model that it is sent, and to train on it."""

import logging
from collections.abc import Callable

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict

from ..core.errors import described
from ..core.ground.wire import ARRAYS, CONFIG, EVALUATED, EVALUATION, FAILED, REASON
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
