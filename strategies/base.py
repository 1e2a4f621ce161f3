"""The base of every server rule: sampling, checked replies, the mean as a fold, the pseudo-gradient."""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.exception import AggregationError
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg
from numpy.typing import NDArray

from .checks import (
    LOGGER,
    MAX_WEIGHT,
    Answer,
    check_metrics,
    check_train_reply,
    clipping_factor,
    weighted_metrics,
)
from .means import MeanKind, new_mean
from .nodes import NodeDirectory, sample
from .replies import PhaseReport, Replies
from .rounds import PARAMETERS, STATISTICS, Extras, Fold, Partial, Round
from .settings import checked, declared, setting
from .state import RuleState
from .vectors import Layout, Vector, steppable
from .wire import SERVER_ROUND

MetricsAggregation = Callable[[list[RecordDict], str], MetricRecord]


class PseudoGradientStrategy(FlowerFedAvg):
    """Base of the server rules: ``x += server_step(D)`` with ``D = sum_i p_i (x_i - x)``.

    It is a Flower ``FedAvg`` whose aggregation is replaced. A rule implements `server_step` and declares
    what it can be told::

        class SignSGD(PseudoGradientStrategy):
            eta: float = setting(0.01, gt=0, alias="server-lr", description="server learning rate")

            def server_step(self, delta, state, round):
                return self.eta * np.sign(delta)

    Trainable parameters get the step; everything else that is shared (BatchNorm statistics, counters) becomes
    its weighted mean. Replies are checked, and reduced in partition order whatever order they arrive in, so
    the result does not depend on timing. An answer that cannot be used is dropped, counted in
    `phase_report`, and told; if fewer than ``min_replies`` are left, the model and the rule's state stay as
    they were.

    Parameters
    ----------
    fraction_train, fraction_evaluate, min_train_nodes, min_evaluate_nodes, min_available_nodes, \
    weighted_by_key, arrayrecord_key, configrecord_key, train_metrics_aggr_fn, evaluate_metrics_aggr_fn
        As in Flower's FedAvg. ``weighted_by_key`` may be None: all clients count alike.
    trainable : Collection[str], optional
        Names of the entries to step; by default every floating entry that does not carry the name of a
        BatchNorm statistic (``running_mean``, ``running_var``, ``num_batches_tracked``).
    ask_partitions : bool
        Whether nodes are asked which partition they hold, to be ordered by it: their app must answer
        the query ``partition_id``. Otherwise they are ordered by node id.
    query_timeout : float
        Seconds to wait for the answers to that.
    **settings
        What the class declares; see the declarations.

    Raises
    ------
    ValueError
        For an argument out of its range; the message names it.
    TypeError
        For one that the rule does not have.
    """

    requires: ClassVar[Mapping[str, Collection[object]]] = {}
    """What the rule needs of the rest of a run: keys of the run configuration -> the values it goes with."""
    weighs_alike: ClassVar[bool] = False
    """Whether the rule takes the plain mean of the models, whatever weighs the metrics."""

    # With an underscore: a subclass written for Flower may well have a `mean` or a `seed` of its own.
    _seed: int = setting(0, ge=0, description="decides, with the round, which nodes are sampled")
    _mean: MeanKind = setting(
        "weighted", description="the mean over clients; median and trimmed withstand liars, and count all alike"
    )
    _trim: float = setting(0.1, ge=0, lt=0.5, description="share that the trimmed mean leaves out at each end")
    _clip_update_norm: float = setting(
        0.0, ge=0, description="bound on the L2 norm of a client's whole update x_i - x; 0 for none"
    )
    _max_weight: float = setting(
        0,
        ge=0,
        le=MAX_WEIGHT,
        alias="max-num-examples",
        description="refuse an answer that claims more training examples; 0 for 2^53",
    )
    _min_replies: int = setting(1, ge=1, description="usable answers that an update of the model takes")
    _node_timeout: float = setting(600.0, ge=0, description="seconds to wait for nodes to connect")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = _signature(type(self)).bind(*args, **kwargs).arguments
        of_flower = {name: given.pop(name) for name in _FLOWERS if name in given}
        trainable: Collection[str] | None = given.pop("trainable", None)
        ask, query_timeout = given.pop("ask_partitions", False), given.pop("query_timeout", 120.0)
        super().__init__(**of_flower)
        self._check_flowers()
        for attribute, value in checked(type(self), given).items():
            setattr(self, attribute, value)
        self.train_metrics_aggr_fn = of_flower.get("train_metrics_aggr_fn") or weighted_metrics
        self.evaluate_metrics_aggr_fn = of_flower.get("evaluate_metrics_aggr_fn") or weighted_metrics
        self.rule_state = RuleState()
        """What the rule remembers; it may be saved and put back between rounds."""
        self.node_directory = NodeDirectory(ask, self._node_timeout, query_timeout)
        """The nodes met so far, in partition order."""
        self.current_arrays: Mapping[str, NDArray] | ArrayRecord | None = None
        """The model that was sent last; under Flower's name for it."""
        self._trainable = trainable
        self._num_nodes = 0
        self._replies = Replies(self.node_directory)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" not in vars(cls):  # for help() and for editors
            cls.__signature__ = _signature(cls)  # type: ignore[attr-defined]

    def _check_flowers(self) -> None:
        for name in ("fraction_train", "fraction_evaluate"):
            if not 0 <= (value := getattr(self, name)) <= 1:
                raise ValueError(f"{name}={value!r} is not allowed: expected a number in [0, 1]")
        for name in ("min_train_nodes", "min_evaluate_nodes", "min_available_nodes"):
            if not (value := getattr(self, name)) >= 0:
                raise ValueError(f"{name}={value!r} is not allowed: expected a whole number >= 0")

    @property
    def phase_report(self) -> PhaseReport:
        """What came back in the current phase, or the last."""
        return self._replies.report

    # ---- what a rule may say ------------------------------------------------------------------------

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        """What is added to the parameters.

        Parameters
        ----------
        delta : Vector
            The pseudo-gradient over all stepped parameters, one flat float vector. The same shape and dtype
            are to be returned, in ``delta`` itself if that is handy.
        state : RuleState
            What the rule remembers; ``state.vector("m", like=delta)``.
        round : Round
            The round, with the means of what `read_extras` took.
        """
        raise TypeError(f"{type(self).__name__} does not define server_step(delta, state, round)")

    def extra_records(self, state: RuleState, round: Round) -> dict[str, ArrayRecord]:
        """What goes to the training clients beside the model."""
        return {}

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        """What the rule takes from an answer beside the model; may raise `ReplyRefused` to drop it."""
        return Extras()

    # ---- a round ------------------------------------------------------------------------------------

    def summary(self) -> None:
        """Log the settings."""
        LOGGER.info("\t├──> %s settings:", type(self).__name__)
        for attribute in declared(type(self)):
            LOGGER.info("\t│\t├── %s: %s", attribute.strip("_"), getattr(self, attribute))
        super().summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages that carry the model to the nodes that train in this round."""
        self.current_arrays = {name: array.numpy() for name, array in arrays.items()}
        return self._configure(MessageType.TRAIN, server_round, arrays, config, grid)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages that carry the model to the nodes that evaluate it in this round."""
        return self._configure(MessageType.EVALUATE, server_round, arrays, config, grid)

    def _configure(
        self, phase: str, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        training = phase == MessageType.TRAIN
        fraction = self.fraction_train if training else self.fraction_evaluate
        wanted = {"min_train_nodes": self.min_train_nodes, "min_replies": self._min_replies}
        if not training:
            wanted = {"min_evaluate_nodes": self.min_evaluate_nodes}
        sent: list[Message] = []
        if fraction > 0:
            minimum = max(wanted.values())
            wanted["min_available_nodes"] = self.min_available_nodes
            title = f"round {server_round}, {phase}: {max(wanted, key=lambda name: wanted[name])}"
            nodes = self.node_directory.connected(grid, max(1, *wanted.values()), title)
            chosen = sample(nodes, fraction, minimum, (self._seed, server_round, int(training)))
            LOGGER.info("configure_%s: Sampled %d nodes (out of %d)", phase, len(chosen), len(nodes))
            self._num_nodes = len(nodes)
            config[SERVER_ROUND] = server_round
            content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
            if training and len(arrays):
                for name, extra in self.extra_records(self.rule_state, self._round(server_round)).items():
                    content[name] = extra
            sent = list(self._construct_messages(content, chosen, phase))
        self._replies.expect(phase, server_round, sent)
        return sent

    def _round(self, server_round: int, answered: Mapping[str, NDArray] | None = None) -> Round:
        """The round, before its answers; ``answered`` stands in for a model that is not known."""
        sent = self.current_arrays or answered or {}
        if isinstance(sent, ArrayRecord):
            sent = {name: array.numpy() for name, array in sent.items()}
        trainable = steppable(sent) if self._trainable is None else self._trainable
        update = self.rule_state.updates + 1
        return Round(server_round, update, Layout(sent, trainable), sent, self._num_nodes)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next model and the mean train metrics; None for both when too few answers could be used.

        Without a model that was sent (mocks, empty initial arrays) the result is the mean of the answers,
        where the rule's step is that mean.

        Raises
        ------
        InconsistentMessageReplies
            When all answers disagree with the model that was sent in the same way.
        AggregationError
            When the rule needs the model that was sent, and there is none.
        """
        reading = _Reading(self, server_round)
        for place, partition, (answer, extras) in self._replies.usable(
            MessageType.TRAIN, server_round, self._screened(replies, is_train=True), reading.read
        ):
            reading.add(place, answer, extras)
            self.phase_report.metrics[partition] = answer.metrics
        if reading.round is None or len(reading.contents) < self._min_replies:
            self._replies.too_few(len(reading.contents), self._min_replies)
            return None, None
        means = reading.fold.result().means()
        delta, statistics = means.pop(PARAMETERS), means.pop(STATISTICS)
        round = replace(
            reading.round,
            num_answers=len(reading.contents),
            metrics=self.phase_report.metrics,
            means=means,
        )
        parameters, reference = round.reference()
        constant = None if np.isfinite(np.dot(delta, delta)) else ~np.isfinite(delta)  # attention masks
        if constant is not None:
            parameters[constant] += delta[constant]
            delta[constant] = 0
        mean = None if self.current_arrays else delta.copy()
        step = self.server_step(delta, self.rule_state, round)
        if mean is not None and not np.array_equal(step, mean):
            raise AggregationError(
                f"{type(self).__name__} steps from the model that was sent, and none was: call configure_train first"
            )
        parameters += step
        statistics += reference
        self.rule_state.updates += 1
        return (
            round.layout.unflatten(parameters, statistics, round.sent),
            self.train_metrics_aggr_fn(reading.contents, self.weighted_by_key),
        )

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The mean evaluate metrics, or None when no answer could be used.

        Raises
        ------
        InconsistentMessageReplies
            When all answers lack what weighs them in the same way.
        """
        contents: list[RecordDict] = []
        for _, partition, (content, metrics) in self._replies.usable(
            MessageType.EVALUATE, server_round, self._screened(replies, is_train=False), self._read_evaluate
        ):
            self.phase_report.metrics[partition] = metrics
            contents.append(content)
        return self.evaluate_metrics_aggr_fn(contents, self.weighted_by_key) if contents else None

    def _screened(self, replies: Iterable[Message], is_train: bool) -> Iterable[Message]:
        """The replies, or what a subclass's own `_check_and_log_replies` leaves of them."""
        if type(self)._check_and_log_replies is FlowerFedAvg._check_and_log_replies:
            return replies
        return self._check_and_log_replies(replies, is_train)[0]

    def _read_evaluate(self, content: RecordDict) -> tuple[RecordDict, MetricRecord]:
        return content, check_metrics(content, self.weighted_by_key)[1]


class _Reading:
    """The answers of one train phase as they are read: the fold, and what the metrics are made from."""

    def __init__(self, strategy: PseudoGradientStrategy, server_round: int) -> None:
        self.strategy = strategy
        self.server_round = server_round
        self.round = strategy._round(server_round) if strategy.current_arrays else None
        self.fold = Fold(self._new_partial)
        self.contents: list[RecordDict] = []
        self._reference = self.round.reference() if self.round else None

    def _new_partial(self) -> Partial:
        assert self.round
        assert self._reference
        kind, trim = self.strategy._mean, self.strategy._trim
        return Partial(self._reference, self.round.layout, partial(new_mean, kind, trim))

    def read(self, content: RecordDict) -> tuple[Answer, Extras]:
        """Check an answer. The first one says what the model looks like where none was sent."""
        rule = self.strategy
        answer = check_train_reply(
            content,
            self.round.sent if self.round else None,
            rule.arrayrecord_key,
            rule.weighted_by_key,
            rule._max_weight or MAX_WEIGHT,
        )
        if self.round is None:
            zeros = {name: np.zeros_like(array) for name, array in answer.arrays.items()}
            self.round = rule._round(self.server_round, zeros)
            self._reference = self.round.reference()
        return answer, rule.read_extras(answer, self.round)

    def add(self, place: int, answer: Answer, extras: Extras) -> None:
        """Add an answer to the fold."""
        assert self.round
        rule, factor = self.strategy, extras.factor
        if rule._clip_update_norm:
            names = self.round.layout.parameters
            factor *= clipping_factor(answer.arrays, self.round.sent, names, rule._clip_update_norm)
        weight = 1.0 if rule.weighs_alike else answer.weight
        self.fold.group_of(place).add(answer, weight, factor, extras.vectors)
        # The whole answer only for those who ask for it: a model per client would stay until the end.
        own = rule.train_metrics_aggr_fn is not weighted_metrics
        self.contents.append(answer.content if own else RecordDict({"metrics": answer.metrics}))


_FLOWERS = tuple(inspect.signature(FlowerFedAvg.__init__).parameters)[1:]


def _signature(cls: type) -> inspect.Signature:
    """Flower's arguments, the public settings of the class, both by position too, and then the rest."""
    flowers = list(inspect.signature(FlowerFedAvg.__init__).parameters.values())[1:]
    keyword, positional = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = [
        inspect.Parameter(name.strip("_"), keyword if name.startswith("_") else positional, default=field.default)
        for name, field in declared(cls).items()
    ]
    rest = [
        inspect.Parameter(name, keyword, default=default)
        for name, default in (("trainable", None), ("ask_partitions", False), ("query_timeout", 120.0))
    ]
    ordered = sorted([*flowers, *own, *rest], key=lambda parameter: parameter.kind)
    return inspect.Signature(ordered)
