"""Messages that ask for more than one training: train and evaluate in one, and choose among models."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from numpy.typing import NDArray

from fedbn_flower.clients import FedAvgClient
from fedbn_flower.clients.modules.surroundings import usual_surroundings
from fedbn_flower.clients.problems.evaluation import evaluate_splits

from ..config.run_config import RunConfig
from ..core.errors import described
from ..core.ground.columns import TRAIN
from ..core.ground.wire import ARRAYS, CANDIDATE, CHOSEN, CONFIG, EVALUATED, EVALUATION, FAILED, MODEL, REASON
from ..core.private import with_content
from ..names import STRATEGY
from ..privacy.floors import Refused

LOGGER = logging.getLogger("flwr.fedbn")
Answers = Callable[[Message, Context], Message]


def answer_both(message: Message, context: Context, evaluate: Answers, train: Answers) -> Message:
    """Return the answer to a train message, including the records of an evaluation if it asks for one.

    The evaluation comes first, on the local state that the last training left. Each of the two can fail
    independently.
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
    """Return the records of an answer, or of a failure the record of its reason."""
    try:
        reply = answer(message, context)
    except Exception as error:  # the other half of the answer may still be useful
        LOGGER.error("%s: not answered", message.metadata.message_type, exc_info=error)
        return RecordDict({FAILED: ConfigRecord({REASON: described(error)})})
    if reply.has_error():
        return RecordDict({FAILED: ConfigRecord({REASON: str(reply.error.reason)})})
    return reply.content


def with_chosen_model(client: FedAvgClient, message: Message, config: RunConfig) -> tuple[Message, str]:
    """Return the message with the model that the client chose, and that model's name; "" without a choice.

    Raises
    ------
    Refused
        If models are sent to choose from that the run's rule has not: the choice would tell of the data.
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
    if config.against_server or config.secagg != "off" or not STRATEGY.find(config.strategy).keeps_models:
        raise Refused(f"strategy: this client chooses among no models in a run of {config.strategy!r}")
    arrays = {name: {n: a.numpy() for n, a in record.items()} for name, record in models.items()}
    name = chosen(client, arrays)
    others = {n: record for n, record in message.content.items() if not n.startswith(CANDIDATE)}
    return with_content(message, RecordDict({ARRAYS: models[name], **others})), name


def answer_of_choice(reply: Message, name: str) -> Message:
    """Return the reply with the name of the model that the client chose, if it had a choice."""
    if name:
        reply.content[CHOSEN] = ConfigRecord({MODEL: name})
    return reply


@usual_surroundings()
def chosen(client: FedAvgClient, models: Mapping[str, Mapping[str, NDArray]]) -> str:
    """Return the name of the model that fits a client best, the first one on a tie.

    Parameters
    ----------
    client : FedAvgClient
        The client, whose local entries complete each of the models.
    models : Mapping[str, Mapping[str, NDArray]]
        The shared entries of each model, by name.

    Raises
    ------
    FloatingPointError
        When no model has a finite loss.
    """
    losses = {name: _loss(client, entries) for name, entries in models.items()}
    best = min(losses, key=lambda name: losses[name])
    if not math.isfinite(losses[best]):
        raise FloatingPointError("no model has a finite loss on the training examples")
    return best


def _loss(client: FedAvgClient, entries: Mapping[str, NDArray]) -> float:
    """Return a model's mean loss on the client's training examples; infinity if it is not finite."""
    task = client.task
    client.load(task.model.state_dict(), entries)  # type: ignore[arg-type]
    try:
        return float(evaluate_splits(task.model, task.evaluation, TRAIN, task.problem)["loss"])
    except FloatingPointError:
        return math.inf
