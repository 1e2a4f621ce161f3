"""Translate a Message to a client's call, and back: the only module that knows Messages and NumPyClients."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import Scalar
from numpy.typing import NDArray

from fedbn_flower.clients import ContextStore, FedAvgClient, LocalTask, Memory, Received, Update, by_name
from fedbn_flower.clients.modules.surroundings import usual_surroundings
from fedbn_flower.clients.returned import WrongResult
from fedbn_flower.clients.returned import described as described_value
from fedbn_flower.strategies import ReplyRefused
from fedbn_flower.strategies.messages.npy import array_bytes, decoded, encoded, encoded_bytes, viewed
from fedbn_flower.strategies.partial_sums import GroupSum, bounds_in

from .. import annexes
from ..config.making import config_at_site
from ..config.run_config import RunConfig
from ..core.errors import not_allowed
from ..core.files import path_of
from ..core.ground import wire
from ..core.ground.columns import TRAIN
from ..core.partition_id import check_node_config, partition_id_of
from ..core.process_cache import process_cache
from ..extensions import AtClient, Outgoing
from ..extensions.at_site import AddsAnswers
from ..job.checks.notices import warnings_of_data
from ..job.checks.own_state import warn_about_own_state
from ..job.inputs import inputs_of
from ..job.rule import make_strategy, set_rates
from ..job.what_is_learnt import what_is_learnt
from ..names import CLIENT
from .answers import check_names_here, received_scale
from .cases import allows_cases, settled
from .cohorts import Evaluated, Fit, cohort_of, evaluate_of
from .evaluation_cache import Evaluations
from .extensions import answered_by_extension, group_sum_in, reported_by_client, sent_by_client
from .inputs import check_start, inputs_at, local_task
from .memory_folder import FolderStore, MemoryFolder, Moment, name_of, signature
from .messages import answer_both, answer_of_choice, with_chosen_model
from .privacy import (
    SitePrivacy,
    failed,
    refusals_in_one_line,
    refuse_evaluation,
    training_config,
    update_of_failure,
    why_failed,
    with_own_mechanism,
)
from .queries import answer_queries

LOGGER = logging.getLogger("flwr.fedbn")
Take = Callable[[Array, NDArray | None], NDArray]
"""Decodes an array; the second argument is one of the same shape and dtype, if known."""
SHOWN = "learnt"
"""The entry of a node's Context that marks that `_log_what_is_learnt` has been done."""

app = ClientApp()
answer_queries(app)
_evaluations = Evaluations()


def _config_at(message: Message, context: Context) -> RunConfig:
    check_node_config(context)
    return config_at_site(context).at_round(round_of(message))


def _client(message: Message, context: Context, config: RunConfig) -> FedAvgClient:
    SitePrivacy.of(config_at_site(context), context)
    asked = message.content.config_records[wire.CONFIG]
    scale = received_scale(asked)
    if digest := asked.get(wire.DIGEST_OF_START):
        check_start(inputs_at(config, context.node_config, scale), str(digest))
    if digests := asked.get(wire.DIGESTS_OF_NAMES):
        check_names_here(inputs_at(config, context.node_config, scale), str(digests))
    task = local_task(config, partition_id_of(context), context.node_config, scale)
    if config.dp == "example" and "data-path" in context.node_config:
        task = with_own_mechanism(config, task, asked)
    return CLIENT.find(config.client)(task, _memory(message, context, config, task))


def round_of(message: Message) -> int:
    """The round number of a message; 0 if it states none."""
    config = message.content.config_records.get(wire.CONFIG)
    number = config.get(wire.SERVER_ROUND, 0) if config else 0
    return number if type(number) is int else 0


def _memory(message: Message, context: Context, config: RunConfig, task: LocalTask) -> Memory:
    """The client's memory: in the node's ``state-dir`` if it has one, else in the Context."""
    state_dir = context.node_config.get("state-dir")
    if state_dir is None:
        for key, value in (("resume", config.resume), ("continue-state", config.continue_state)):
            if value and inputs_of(config).remembers:
                raise not_allowed(key, value, "SuperNodes with a state-dir: this one forgets when a run ends")
        return Memory(ContextStore(context.state, round_of(message)))
    fits = signature(config.memory_name, config.client, config.objective, task.initial)
    folder = MemoryFolder(path_of(str(state_dir)) / config.memory_name, fits, config.keep_memories)
    asked = message.content.config_records[wire.CONFIG]
    moment = Moment.of(asked)
    before_training = (
        message.metadata.message_type == MessageType.TRAIN or asked.get(wire.EVAL_SPLITS) == TRAIN
    )
    return Memory(FolderStore(folder, name_of(context), moment, not before_training, config.continue_state))


def _received(client: FedAvgClient, message: Message, take: Take | None = None) -> Received:
    """The received records, each array decoded by ``take``, which copies by default."""
    take, initial = take or _array, client.task.initial
    records = {
        name: {entry: take(array, initial.get(entry)) for entry, array in record.items()}
        for name, record in message.content.array_records.items()
    }
    return Received(by_name(records.pop(wire.ARRAYS), client.shared_names), records)


def _array(array: Array, like: NDArray | None) -> NDArray:
    """A writable copy; given an array of its shape and dtype, ten times as fast as ``array.numpy()``."""
    return array.numpy() if like is None else np.array(decoded(array, like))


def _view(array: Array, like: NDArray | None) -> NDArray:
    """A view, not to be written to."""
    return viewed(array) if like is None else decoded(array, like)


def _config(message: Message, context: Context, config: RunConfig) -> dict[str, Scalar]:
    """The message's configuration, without requests that this client does not answer."""
    left_out = () if allows_cases(context, config) else (wire.CASES,)
    asked = message.content.config_records[wire.CONFIG]
    return {k: v for k, v in asked.items() if not isinstance(v, list) and k not in left_out}


def _metrics(metrics: Mapping[str, Any]) -> MetricRecord:
    """Flower's MetricRecord takes int, float and lists of them only: not bool, np.float32 or str."""
    return MetricRecord({k: v if type(v) in (int, list) else _number(k, v) for k, v in metrics.items()})


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"the metric {name!r} is {described_value(value)}, expected a number") from None


def _reported(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The records of a client's report: its metrics, and the metric states among them."""
    states = metrics.get(wire.STATES)
    numbers = {name: value for name, value in metrics.items() if name not in (wire.CASES, wire.STATES)}
    records = {wire.METRICS: _metrics(numbers)}
    return {**records, **({wire.STATES: _record(states)} if states else {})}


def _recalibrated(
    metrics: dict[str, Any], client: FedAvgClient, message: Message, context: Context, config: RunConfig
) -> dict[str, Any]:
    """The metrics, with those of recalibrated scores if the message asks for them."""
    asked = _config(message, context, config)
    if wire.RECALIBRATE not in asked:
        return metrics
    scale = received_scale(message.content.config_records[wire.CONFIG])
    names = inputs_at(config, context.node_config, scale).dataset.output_names
    recalibrated = annexes.load("at-a-site", "recalibrate")
    found: dict[str, Any] = recalibrated(metrics, asked, config.recalibrate, client.task.problem, names)
    return found


def _remembered(client: FedAvgClient, context: Context) -> dict[str, ConfigRecord]:
    """The record of the memories that the client found and keeps; empty if it has nowhere to keep one."""
    memory, on_disk = client.memory, "state-dir" in context.node_config
    found, kept = memory.found_round, memory.last_round
    if not (found or kept or on_disk):
        return {}
    return {wire.MEMORY: ConfigRecord({wire.FOUND: found, wire.KEPT: kept, wire.ON_DISK: on_disk})}


def _fit(
    client: FedAvgClient,
    message: Message,
    context: Context,
    config: RunConfig,
    trained: Update | Exception | None,
) -> Update:
    """The client's update, from its `fit` or from training in lockstep."""
    privacy = SitePrivacy.of(config_at_site(context), context)
    privacy.charge_training(client.task, message.content.config_records[wire.CONFIG])
    try:
        if isinstance(trained, Exception):
            raise trained
        settings = training_config(config, _config(message, context, config))
        result: object = trained or client.fit(_received(client, message), settings)
    except FloatingPointError as error:
        return update_of_failure(config, _received(client, message), error)
    if isinstance(result, Update):
        return result
    if isinstance(result, tuple) and len(result) == 3 and isinstance(result[2], Mapping):
        return Update(*result)
    raise WrongResult(client, "fit", result, "(arrays, number of examples, metrics)")


def _evaluated(
    client: FedAvgClient, message: Message, settings: dict[str, Scalar]
) -> tuple[float, int, dict[str, Scalar]]:
    result: object = client.evaluate(_received(client, message), settings)
    if isinstance(result, tuple) and len(result) == 3 and isinstance(result[2], Mapping):
        return result
    raise WrongResult(client, "evaluate", result, "(loss, number of examples, metrics)")


def _reply(
    message: Message,
    client: FedAvgClient,
    update: Update,
    context: Context,
    config: RunConfig,
    group: AddsAnswers | None,
) -> Message:
    """The reply with the result of `fit`; commits the client's memory.

    With a group, the model is added to its sum, and stays in the reply only if the server has to refuse it.
    """
    at = _at(client, message, context, config)
    found = _recalibrated(update.metrics, client, message, context, config)
    update = Update(update.arrays, update.num_examples, found, update.records)
    outgoing = sent_by_client(Outgoing(update), at)
    update, model = outgoing.update, outgoing.model(client.shared_names)
    reserved = {
        wire.ARRAYS,
        wire.CASES,
        wire.CHOSEN,
        wire.COMPRESSED,
        wire.FAILED,
        wire.MEMORY,
        wire.METRICS,
        wire.STATES,
    }
    if taken := {name for name in update.records if name in reserved or name.startswith(wire.EVALUATED)}:
        raise ValueError(f"a further record cannot be called {min(taken)!r}")
    reported = _reported({wire.NUM_EXAMPLES: update.num_examples, **update.metrics})
    metrics, content = reported[wire.METRICS], RecordDict(reported)
    for name, arrays in update.records.items():
        content[name] = _record(arrays)
    travels = model if outgoing.travels is None else outgoing.travels
    coded = RecordDict({} if outgoing.codes is None else {wire.COMPRESSED: outgoing.codes})
    if group is None:
        content[wire.ARRAYS] = _record(travels)
        content.update(coded)
    if client.memory.written and not inputs_of(config).remembers:
        names = " and ".join(sorted(client.memory.written))
        raise TypeError(f"{type(client).__name__} writes {names} to its memory but does not set `remembers`")
    client.memory.commit()
    if group is None:
        content.update(_remembered(client, context))
    if group:
        try:
            group.add(RecordDict({**content, **coded}), model)
            metrics[wire.SENT_BYTES] = array_bytes(content) + sum(map(encoded_bytes, travels.values()))
            metrics[wire.SENT_BYTES] += array_bytes(coded)
            content = RecordDict(reported)
        except ReplyRefused:
            content[wire.ARRAYS] = _record(model)
    content.update(settled(update.metrics.get(wire.CASES), message, context, config))
    return Message(content, reply_to=message)


def _record(arrays: Mapping[str, NDArray]) -> ArrayRecord:
    if wrong := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise TypeError(f"{wrong[0]!r} is {described_value(arrays[wrong[0]])}, expected a NumPy array")
    return ArrayRecord({name: encoded(array) for name, array in arrays.items()})


def _at(client: FedAvgClient, message: Message, context: Context, config: RunConfig) -> AtClient:
    asked = message.content.config_records[wire.CONFIG]
    received, views = (partial(_received, client, message, take) for take in (None, _view))
    return AtClient(client, received, config, asked, round_of(message), context, views)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train on the received model; evaluate it before, if the message asks for both."""
    return answer_both(message, context, evaluate, _train)


@usual_surroundings()
@refusals_in_one_line
def _train(message: Message, context: Context) -> Message:
    return _train_one(message, context, _config_at(message, context))


def _train_one(
    message: Message,
    context: Context,
    config: RunConfig,
    group: AddsAnswers | None = None,
    trained: tuple[FedAvgClient, Update | Exception] | None = None,
) -> Message:
    """Train a client on the received model; its memory changes only on success.

    All training passes through here: of a single client, in a ``group`` that is summed, and in lockstep,
    where ``trained`` is the client with its update or error.
    """
    client, result = trained or (_client(message, context, config), None)
    _log_what_is_learnt(message, context, config)
    message, choice = with_chosen_model(client, message, config)
    update = _fit(client, message, context, config, result)
    return answer_of_choice(_reply(message, client, update, context, config, group), choice)


def _log_what_is_learnt(message: Message, context: Context, config: RunConfig) -> None:
    """Log once, at a site with data of its own, what is learnt from them, and the warnings about them."""
    if "data-path" not in context.node_config or SHOWN in context.state:
        return
    context.state[SHOWN] = ConfigRecord()
    scale = received_scale(message.content.config_records[wire.CONFIG])
    inputs = inputs_at(config, context.node_config, scale)
    for note in what_is_learnt(inputs, partition_id_of(context) or 0):
        LOGGER.info("%s", note)
    for line in (*warnings_of_data(inputs), *warn_about_own_state(inputs)):
        LOGGER.warning("%s", line)


@app.evaluate()
@usual_surroundings()
@refusals_in_one_line
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate the received model, or answer a question before training or a message from an extension."""
    return _evaluate_one(message, context)


def _evaluate_one(
    message: Message, context: Context, evaluated: tuple[FedAvgClient, Evaluated | None] | None = None
) -> Message:
    """See `evaluate`. With ``evaluated``, the client, and its result if it is known."""
    config, privacy = _config_at(message, context), SitePrivacy.of(config_at_site(context), context)
    if answer := answered_by_extension(message, context, config_at_site(context)):
        return answer
    asked = message.content.config_records[wire.CONFIG]
    refuse_evaluation(config, str(asked.get(wire.EVAL_SPLITS, "")))
    client, known = evaluated or (_client(message, context, config), None)
    if question := asked.get(wire.ASKED):
        return _first_answer(str(question), client, message, context, config)
    message, choice = with_chosen_model(client, message, config)
    if config.against_server:
        noisy = privacy.metrics(client, _received(client, message), asked, round_of(message))
        reported = _reported({wire.NUM_EXAMPLES: noisy["eval-examples"], **noisy})
        return Message(RecordDict({**reported, **_remembered(client, context)}), reply_to=message)
    settings = _config(message, context, config)
    loss, num_examples, metrics = _evaluations.find(
        client, message.content, lambda: known or _evaluated(client, message, settings)
    )
    metrics = _recalibrated(metrics, client, message, context, config)
    found = {wire.LOSS: loss, **metrics}
    if records := reported_by_client(num_examples, found, _at(client, message, context, config)):
        return Message(RecordDict({**records, **_remembered(client, context)}), reply_to=message)
    reported = _reported({wire.NUM_EXAMPLES: num_examples, wire.LOSS: loss, **metrics})
    cases = settled(metrics.get(wire.CASES), message, context, config)
    reply = Message(RecordDict({**reported, **_remembered(client, context), **cases}), reply_to=message)
    return answer_of_choice(reply, choice)


def _first_answer(
    question: str, client: FedAvgClient, message: Message, context: Context, config: RunConfig
) -> Message:
    """The answer to the server's question before a round's training: one record of the objective."""
    found = client.first_answer(_received(client, message), _config(message, context, config))
    if question not in found:
        raise ValueError(f"{client.task.objective.__name__} has no answer to the question of {question!r}")
    metrics = MetricRecord({wire.NUM_EXAMPLES: client.task.size})
    return Message(RecordDict({question: _record(found[question]), wire.METRICS: metrics}), reply_to=message)


@usual_surroundings()
def answer_all(
    messages: Sequence[Message], contexts: Sequence[Context], summed: bool = False
) -> list[Message]:
    """The app's replies to messages with the same content; done at once as far as the run's clients can.
    If a client raises, its reply is an error with the reason.

    ``summed``: the train messages are a group of the server's fold. The first usable reply then carries the
    sum of their models, and the others none.
    """
    config = _config_at(messages[0], contexts[0])
    group = _group(config, messages[0]) if summed else None
    training = messages[0].metadata.message_type == MessageType.TRAIN
    if training and len(messages) > 1 and (fit := cohort_of(inputs_of(config)).fit):
        replies = _train_at_once(fit, messages, contexts, config, group)
    else:
        at_once = _evaluated_at_once(messages, contexts, config)
        whole = zip(messages, contexts, at_once, strict=True)
        replies = [_answer(m, context, config, group, evaluated=one) for m, context, one in whole]
    if group:
        bearer = (r.content for r in replies if r.has_content() and wire.ARRAYS not in r.content)
        next(bearer, RecordDict()).update(group.records())
    return replies


class FedbnClients:
    """This project's clients, as `ClientSide`."""

    prints = False

    def remembers(self, message: Message) -> bool:
        """Whether the message is for the client, rather than a query to the node."""
        return not message.metadata.message_type.startswith(MessageType.QUERY)

    def answer(self, messages: Sequence[Message], contexts: Sequence[Context], summed: bool) -> list[Message]:
        """See `answer_all`."""
        return answer_all(messages, contexts, summed)


_rule = process_cache(maxsize=4)(make_strategy)


def _group(config: RunConfig, message: Message) -> AddsAnswers:
    if group := group_sum_in(config):
        return group
    inputs = inputs_of(config)
    _, initial = inputs.model()
    arrays = message.content.array_records[wire.ARRAYS]
    sent = {name: decoded(array, initial[name]) for name, array in arrays.items()}
    received: Mapping[str, Any] = message.content.config_records[wire.CONFIG]
    rule, server_round = _rule(inputs), int(received[wire.SERVER_ROUND])
    set_rates(rule, config, server_round)
    return GroupSum(rule, server_round, sent, *bounds_in(received))


def _answer(
    message: Message,
    context: Context,
    config: RunConfig,
    group: AddsAnswers | None,
    trained: tuple[FedAvgClient, Update | Exception] | None = None,
    evaluated: tuple[FedAvgClient, Evaluated | None] | None = None,
) -> Message:
    try:
        if evaluated:
            return refusals_in_one_line(partial(_evaluate_one, evaluated=evaluated))(message, context)
        if group is None and trained is None:
            return app(message, context)
        return _train_one(message, context, config, group, trained)
    except Exception as error:  # a client's failure is an answer and must not end the worker
        return failed(message, why_failed(config, error))


def _train_at_once(
    fit: Fit,
    messages: Sequence[Message],
    contexts: Sequence[Context],
    config: RunConfig,
    group: AddsAnswers | None,
) -> list[Message]:
    """The replies of a cohort; clients train one by one if lockstep fails as a whole."""
    pairs = list(zip(messages, contexts, strict=True))
    try:
        clients = [_client(message, context, config) for message, context in pairs]
        settings = training_config(config, _config(messages[0], contexts[0], config))
        results = fit(clients, _received(clients[0], messages[0]), settings)
    except Exception as error:
        LOGGER.info("clients train one by one in this round: in lockstep, %s", error)
        return [_answer(message, context, config, group) for message, context in pairs]
    trained = zip(clients, results, strict=True)
    return [_answer(*pair, config, group, one) for pair, one in zip(pairs, trained, strict=True)]


def _evaluated_at_once(
    messages: Sequence[Message], contexts: Sequence[Context], config: RunConfig
) -> Sequence[tuple[FedAvgClient, Evaluated | None] | None]:
    """The clients of messages that ask for an evaluation, with the results of those evaluated in lockstep.

    Nothing if all are evaluated one by one.
    """
    nothing = [None] * len(messages)
    asked = messages[0].content.config_records.get(wire.CONFIG, ConfigRecord())
    evaluates = messages[0].metadata.message_type == MessageType.EVALUATE and asked.get(wire.EVAL_SPLITS)
    if len(messages) == 1 or not evaluates or wire.ASKED in asked or config.against_server:
        return nothing
    if not (evaluate := evaluate_of(inputs_of(config))):
        return nothing
    try:
        pairs = zip(messages, contexts, strict=True)
        clients = [_client(message, context, config) for message, context in pairs]
        settings = _config(messages[0], contexts[0], config)
        results = evaluate(clients, _received(clients[0], messages[0]), settings)
    except Exception as error:
        LOGGER.info("clients are evaluated one by one in this round: in lockstep, %s", error)
        return nothing
    return list(zip(clients, results, strict=True))
