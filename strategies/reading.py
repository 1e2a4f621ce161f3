"""The answers of a train phase as they are read."""

from functools import partial

import numpy as np
from flwr.app import MetricRecord, RecordDict

from .checks import MAX_WEIGHT, Answer, check_train_reply, clipping_factor, weighted_metrics
from .means import new_mean
from .rounds import Extras, Fold, Partial, Round
from .rule import ServerRule
from .vectors import Vector
from .wire import METRICS


class Reading:
    """The fold over the answers, and what their metrics are made from.

    ``round`` is None until it is known what the model looks like: where none was sent, the first answer says
    so. ``metrics`` are by partition; ``contents`` is what the metric function is given.

    Parameters
    ----------
    rule : ServerRule
        Whose round it is.
    server_round : int
        Its number.
    """

    def __init__(self, rule: ServerRule, server_round: int) -> None:
        self.rule = rule
        self.server_round = server_round
        self.round: Round | None = None
        self.metrics: dict[int, MetricRecord] = {}
        self.contents: list[RecordDict] = []
        self.fold = Fold(self._new_partial)
        self._reference: tuple[Vector, Vector] | None = None
        if rule._sent_model_:
            self._begin(rule.new_round(server_round))

    def _begin(self, round: Round) -> None:
        self.round, self._reference = round, round.reference()

    def _new_partial(self) -> Partial:
        assert self.round
        assert self._reference
        return Partial(
            self._reference, self.round.layout, partial(new_mean, self.rule._mean_, self.rule._trim_)
        )

    def read(self, content: RecordDict) -> tuple[Answer, Extras]:
        """Check an answer.

        Raises
        ------
        ReplyRefused
            When it cannot be used.
        """
        rule, sent = self.rule, self.round.sent if self.round else None
        cap = rule._max_weight_ or MAX_WEIGHT
        answer = check_train_reply(content, sent, rule.arrayrecord_key, rule.weighted_by_key, cap)
        if self.round is None:
            zeros = {name: np.zeros_like(array) for name, array in answer.arrays.items()}
            self._begin(rule.new_round(self.server_round, zeros))
        assert self.round
        return answer, rule.read_extras(answer, self.round)

    def add(self, place: int, partition: int, answer: Answer, extras: Extras) -> None:
        """Add an answer to the fold."""
        assert self.round
        rule, factor = self.rule, extras.factor
        if rule._clip_update_norm_:
            names = self.round.layout.parameters
            factor *= clipping_factor(answer.arrays, self.round.sent, names, rule._clip_update_norm_)
        weight = 1.0 if rule.weighs_alike else answer.weight
        self.fold.group_of(place).add(answer, weight, factor, extras.vectors)
        self.metrics[partition] = answer.metrics
        # The whole answer only for those who ask for it: a model per client would stay until the end.
        own = rule.train_metrics_aggr_fn is not weighted_metrics
        self.contents.append(answer.content if own else RecordDict({METRICS: answer.metrics}))
