"""One exchange per round: clients evaluate a round's model just before they train it in the next round.

A client's local state does not change between two rounds of training. So the metrics are bit-identical to
those of a separate evaluation, which only the last round needs. A round is complete, and can end the run,
once the answers to the next round's train messages have arrived. If it does end the run, these answers are
discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from flwr.app import ConfigRecord, Error, Message, RecordDict

from fedbn_flower.strategies import PseudoGradientStrategy

from ..config.named_algorithms import EXTENSION, extension_classes, extension_names
from ..config.run_config import RunConfig
from ..core.ground.settings import overridden
from ..core.ground.wire import CONFIG, EVALUATED, EVALUATION, FAILED, REASON
from ..core.private import ErrorCode, set_message_id
from ..extensions import ServerHook
from ..extensions.declared import overrides

BEFORE_THE_ANSWERS = (
    "before_round", "prepare", "send", "settings", "received", "on_answer",
)  # fmt: skip
"""Extension hooks that, with one exchange, run for a round before the last one is evaluated."""
OF_MESSAGES = (
    "configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate",
    "_construct_messages", "_check_and_log_replies", "collect_train", "step_train",
)  # fmt: skip
"""Strategy methods that make or read a phase's messages."""


class Reason(NamedTuple):
    """Why evaluation needs a separate exchange."""

    why: str
    """The text, with the run's keys in braces."""
    holds: Callable[[RunConfig, PseudoGradientStrategy], bool]


REASONS = (
    Reason("evaluate-with-training is 'off'", lambda config, _: config.evaluate_with_training == "off"),
    Reason(
        "no client evaluates the model that it receives",
        lambda config, _: config.eval_model == "local" or not config.clients_evaluate,
    ),
    Reason(
        "some clients have no held-out examples",
        lambda _, rule: bool(getattr(rule.node_participation, "untested", ())),
    ),
    Reason(
        "with strategy {strategy!r} clients have different models",
        lambda _, rule: rule.keeps_models,
    ),
    Reason(
        "strategy {strategy!r} has messages of its own",
        lambda _, rule: any(
            not cls.__module__.startswith(PseudoGradientStrategy.__module__.rpartition(".")[0])
            for cls in _defining(rule)
        ),
    ),
    Reason(
        "strategy {strategy!r} sends another model than the one that is evaluated",
        lambda _, rule: bool(overridden(type(rule), PseudoGradientStrategy, ("ahead",))),
    ),
    Reason(
        "extension {extension!r} takes part in a round before the last one is evaluated",
        lambda config, _: any(
            overrides(EXTENSION.find(name), ServerHook, BEFORE_THE_ANSWERS)
            for name in extension_names(config.extension)
        ),
    ),
)
"""The reasons, of which the first that holds is logged. Two are not listed: a simulation, where an exchange
is free, and the reasons of extensions, which come after the second."""


def _defining(rule: PseudoGradientStrategy) -> Iterator[type]:
    """Yield the classes below the base of all rules that override a rule's methods `OF_MESSAGES`."""
    below = type(rule).__mro__[: type(rule).__mro__.index(PseudoGradientStrategy)]
    yield from (cls for cls in below if not vars(cls).keys().isdisjoint(OF_MESSAGES))


def why_separate(config: RunConfig, rule: PseudoGradientStrategy) -> str:
    """Return why a run's evaluations need separate exchanges; empty if they do not.

    Parameters
    ----------
    config : RunConfig
        The run's.
    rule : PseudoGradientStrategy
        The server's rule.
    """
    values, by_key = config.model_dump(), config.to_user_config()
    whys = [one.why.format(**values) if one.holds(config, rule) else "" for one in REASONS]
    of_extensions = [cls.about(by_key).apart for cls in extension_classes(by_key).values()]
    return next(filter(None, [*whys[:2], *of_extensions, *whys[2:]]), "")


@dataclass
class JointEvaluation:
    """An evaluation that travels with train messages, and its answers so far.

    Parameters
    ----------
    messages : Sequence[Message]
        The evaluate messages. For a client that also trains, only the configuration is added to its train
        message, as the model is the same.
    """

    messages: Sequence[Message]
    answers: list[Message] = field(default_factory=list)
    """The answers to the messages, including those joined to train messages."""

    def __post_init__(self) -> None:
        self._pairs: list[tuple[Message, Message]] = []
        self._alone: list[Message] = []
        self._asked: Mapping[str, tuple[Message | None, Message]] = {}

    def joined(self, training: Sequence[Message]) -> list[Message]:
        """Return the messages to send: the train messages, and those to clients that only evaluate."""
        waiting = {message.metadata.dst_node_id: message for message in self.messages}
        contents: dict[int, tuple[RecordDict, RecordDict]] = {}  # holds both, so that no id is reused
        for message in training:
            if evaluation := waiting.pop(message.metadata.dst_node_id, None):
                content = message.content
                asked = evaluation.content.config_records[CONFIG]
                _, message.content = contents.setdefault(
                    id(content), (content, RecordDict({**content, EVALUATION: asked}))
                )
                self._pairs.append((message, evaluation))
        self._alone = list(waiting.values())
        return [*training, *self._alone]

    def parts(self, reply: Message) -> tuple[Message | None, Message | None]:
        """Split a reply into the answer to an evaluation and the answer to a train message."""
        if not self._asked:  # messages get their ids when they are sent
            self._asked = {one.metadata.message_id: (None, one) for one in self._alone}
            for training, evaluation in self._pairs:
                set_message_id(evaluation, f"{EVALUATED}{training.metadata.message_id}")
                self._asked |= {training.metadata.message_id: (training, evaluation)}
        asked_to_train, asked = self._asked.get(reply.metadata.reply_to_message_id, (None, None))
        if not asked:
            return None, reply
        if not asked_to_train:
            return reply, None
        if not reply.has_content():
            return Message(Error(reply.error.code, reply.error.reason), reply_to=asked), reply
        found, others = RecordDict(), RecordDict()
        for name, record in reply.content.items():
            (found if name.startswith(EVALUATED) else others)[name.removeprefix(EVALUATED)] = record
        return _as_answer(found, asked), _as_answer(others, asked_to_train)


def _as_answer(content: RecordDict, asked: Message) -> Message:
    """Return the content as an answer to a message: as an error if it says that the client failed."""
    failed = content.get(FAILED)
    if not isinstance(failed, ConfigRecord):
        return Message(content, reply_to=asked)
    error = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, str(failed.get(REASON, "")))
    return Message(error, reply_to=asked)
