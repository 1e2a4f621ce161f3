"""`AsksFirst`, the base of server rules that query a round's clients before they train."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedbn_flower.core.ground.columns import TRAIN
from fedbn_flower.core.ground.wire import ASKED, EVAL_SPLITS, SERVER_ROUND

from .aggregation.fold import Round
from .aggregation.means import Summand, WeightedMean
from .aggregation.vectors import Vector
from .base import PseudoGradientStrategy
from .messages.gate import ReplyRefused, record_of, refusing
from .messages.replies import Replies
from .messages.validation import LOGGER, MAX_WEIGHT, Range, check_arrays, check_metrics

Like = Mapping[str, NDArray]
Expected = Like | Callable[[Set[str]], Like]
QUESTION = "question"
"""The name of the exchange in the log."""


class FirstAnswers(NamedTuple):
    """The mean of the answers to a question, by the names of their arrays, and the sum of their weights."""

    mean: Mapping[str, NDArray]
    weight: float


class Ask(Protocol):
    """Ask the round's clients `AsksFirst.first_question`, one exchange.

    ``expected`` gives the arrays of an answer, and ``ranges`` the ranges of their numbers. If clients decide
    what to answer, ``expected`` maps the names in an answer to its arrays, or refuses them; then the names of
    the majority are required of all. ``records`` are sent with the question. None if no answer can be used.
    """

    def __call__(
        self,
        expected: Expected,
        dtype: np.dtype,
        records: Mapping[str, ArrayRecord] = {},
        ranges: Mapping[str, Range] = {},
    ) -> FirstAnswers | None: ...


class AsksFirst(PseudoGradientStrategy):
    """Asks the clients that are to train for a vector at the model that they are sent.

    The mean over those that answer, weighted as models are, is sent to all of them with the train message, as
    the record `first_question`, and is `first_mean` in the rule's step. So a round has two exchanges. A
    client whose answer is lost is asked to train nevertheless, and the loss is reported among the failures of
    the training; if no answer can be used, nobody trains in this round. A rule that overrides `first_records`
    asks for other arrays, or several times.

    The question is an evaluate message with `ASKED` in its configuration, and all content of a train message.
    The objective answers by `Objective.first_answer`.
    """

    requires: ClassVar[Mapping[str, Collection[object]]] = {"mean": {"weighted"}, "devices": {"none"}}
    """The mean of the vectors is weighted; a simulated clock knows of one exchange a round."""
    first_question: ClassVar[str]
    """The record of arrays like the stepped parameters that clients are asked for."""
    first_mean: Vector
    """The mean of the answers, over all stepped parameters."""
    node_asking: Callable[[list[Message]], Iterable[Message]] | None = None
    """Sends questions and returns the answers; by default the Grid does. Assign one before each round."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._questions_ = Replies(self.node_directory)
        self._lost_answers_: dict[int, str] = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self._lost_answers_.clear()
        timeout = self.node_directory.query_timeout
        self._asking_ = self.node_asking or partial(grid.send_and_receive, timeout=timeout)
        return super().configure_train(server_round, arrays, config, grid)

    def collect_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        found = super().collect_train(server_round, replies)
        for partition, reason in self._lost_answers_.items():
            self.phase_report.failures.setdefault(partition, f"{QUESTION}: {reason}")
        return found

    def _construct_messages(
        self, record: RecordDict, node_ids: list[int], message_type: str
    ) -> Iterable[Message]:
        if message_type == MessageType.TRAIN and node_ids:
            config = record.config_records[self.configrecord_key]
            server_round = config[SERVER_ROUND]
            assert isinstance(server_round, int)
            round = self.new_round(server_round, self._train_phase_)
            records = self.first_records(round, partial(self.__ask, round, record, node_ids))
            if records is None:
                LOGGER.warning("round %d: no answer to the question of %r", server_round, self.first_question)
                return []
            record.update(records)
        return super()._construct_messages(record, node_ids, message_type)

    def first_records(self, round: Round, ask: Ask) -> Mapping[str, ArrayRecord] | None:
        """Ask, and return the records to send with the train messages; None if no answer can be used."""
        expected = {name: np.zeros_like(round.sent[name]) for name in round.layout.parameters}
        found = ask(expected, round.layout.dtypes[0])
        if found is None:
            return None
        self.first_mean = round.layout.flatten_parameters(found.mean)
        return {self.first_question: round.layout.parameters_record(self.first_mean)}

    def __ask(
        self,
        round: Round,
        record: RecordDict,
        node_ids: list[int],
        expected: Expected,
        dtype: np.dtype,
        records: Mapping[str, ArrayRecord] = {},
        ranges: Mapping[str, Range] = {},
    ) -> FirstAnswers | None:
        """Return the mean of the answers that can be used, in partition order; see `Ask`."""
        config = record.config_records[self.configrecord_key]
        told = ConfigRecord({**config, ASKED: self.first_question, EVAL_SPLITS: TRAIN})
        question = RecordDict({**record, **records, self.configrecord_key: told})
        messages = [Message(question, node, MessageType.EVALUATE) for node in node_ids]
        most = self._max_weight_ or MAX_WEIGHT
        replies = self._asking_(messages)
        if callable(expected):
            replies = list(replies)
            like = _of_most(replies, self.first_question, expected)
        else:
            like = expected
        mean = WeightedMean([_flat(map(np.zeros_like, like.values()), dtype)], dtype)

        def read(content: RecordDict) -> Summand:
            with refusing():
                weight, _ = check_metrics(content, self.weighted_by_key, most)
                answer = record_of(content, self.first_question, ArrayRecord)
                found = check_arrays(answer, like, ranges)
            return Summand([_flat(found.values(), dtype)], 1.0 if self.weighs_alike else weight)

        questions = self._questions_
        questions.expect(QUESTION, round.number, messages)
        for *_, summand in questions.usable(QUESTION, round.number, replies, read):
            mean.add(summand)
        for partition, reason in questions.report.failures.items():
            self._lost_answers_.setdefault(partition, reason)
        if not mean.total_weight:
            return None
        weight, vector = mean.total_weight, mean.mean()
        starts = np.cumsum([0, *(entry.size for entry in like.values())])
        return FirstAnswers(
            {
                name: vector[start : start + entry.size].reshape(entry.shape)
                for (name, entry), start in zip(like.items(), starts[:-1], strict=True)
            },
            weight,
        )


def _of_most(replies: Sequence[Message], question: str, expected: Callable[[Set[str]], Like]) -> Like:
    """Return the expected arrays by the names that most answers have, among acceptable ones."""
    records = (reply.content.get(question) for reply in replies if reply.has_content())
    names = Counter(frozenset(record) for record in records if isinstance(record, ArrayRecord))
    for one, _ in names.most_common():
        with suppress(ReplyRefused):
            return expected(one)
    return {}


def _flat(arrays: Iterable[NDArray], dtype: np.dtype) -> Vector:
    return np.concatenate([np.empty(0, dtype), *(array.ravel() for array in arrays)], dtype=dtype)
