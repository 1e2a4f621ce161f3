"""`AsksFirst`, the base of server rules that ask a round's clients something before they train."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid

from fedbn_flower.core.ground.columns import TRAIN
from fedbn_flower.core.ground.wire import ASKED, EVAL_SPLITS, SERVER_ROUND

from .aggregation.fold import Round
from .aggregation.means import Summand, WeightedMean
from .aggregation.vectors import Vector
from .base import PseudoGradientStrategy
from .messages.gate import record_of, refusing
from .messages.replies import Replies
from .messages.validation import LOGGER, MAX_WEIGHT, check_arrays, check_metrics

QUESTION = "question"
"""The name of the exchange in the log."""


class AsksFirst(PseudoGradientStrategy):
    """Asks the clients that are to train for a vector at the model that they are sent.

    Its mean over those that answer goes to all of them with the message to train, as the record
    `first_question`, and is `first_mean` in the rule's step. So a round has two exchanges. It is weighted as
    models are. A client whose answer to the question is lost is asked to train nevertheless, and what became
    of the answer is among the failures of the training; if no answer can be used, nobody trains in this
    round.

    The question is an evaluate message with `ASKED` in its configuration, and all that a train message has.
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

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self._questions_.expect(QUESTION, server_round, [])
        timeout = self.node_directory.query_timeout
        self._asking_ = self.node_asking or partial(grid.send_and_receive, timeout=timeout)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        found = super().aggregate_train(server_round, replies)
        for partition, reason in self._questions_.report.failures.items():
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
            told = ConfigRecord({**config, ASKED: self.first_question, EVAL_SPLITS: TRAIN})
            question = RecordDict({**record, self.configrecord_key: told})
            messages = [Message(question, node, MessageType.EVALUATE) for node in node_ids]
            mean = self.__mean_of_answers(messages, round)
            if mean is None:
                LOGGER.warning("round %d: no answer to the question of %r", server_round, self.first_question)
                return []
            self.first_mean = mean
            record[self.first_question] = round.layout.parameters_record(mean)
        return super()._construct_messages(record, node_ids, message_type)

    def __mean_of_answers(self, messages: list[Message], round: Round) -> Vector | None:
        """Return the mean of the answers that can be used, in partition order; None without any."""
        expected = {name: np.zeros_like(round.sent[name]) for name in round.layout.parameters}
        most = self._max_weight_ or MAX_WEIGHT

        def read(content: RecordDict) -> Summand:
            with refusing():
                weight, _ = check_metrics(content, self.weighted_by_key, most)
                found = check_arrays(record_of(content, self.first_question, ArrayRecord), expected)
            return Summand([round.layout.flatten_parameters(found)], 1.0 if self.weighs_alike else weight)

        like = round.layout.flatten_parameters(expected)
        mean, questions = WeightedMean([like], like.dtype), self._questions_
        questions.expect(QUESTION, round.number, messages)
        for _, _, summand in questions.usable(QUESTION, round.number, self._asking_(messages), read):
            mean.add(summand)
        return mean.mean() if mean.total_weight else None
