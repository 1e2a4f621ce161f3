"""`PseudoGradientStrategy`, the base of every server rule: sampling, checked replies, the pseudo-gradient."""

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.exception import AggregationError
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg
from numpy.typing import NDArray

from fedbn_flower.core.ground.settings import declared, setting
from fedbn_flower.core.ground.wire import SERVER_ROUND

from .aggregation.buffers import Buffer
from .aggregation.fold import PARAMETERS, STATISTICS, WITHIN, Extras, Fold, PartialSum, Round, TrainPhase
from .aggregation.named_means import MeanKind, named_mean, new_mean
from .aggregation.rule_state import RuleState
from .aggregation.vectors import Layout, Vector, all_finite, checked_step, steppable
from .expected import ExpectedMetrics, FurtherNames
from .messages.gate import refusing
from .messages.nodes import Everybody, NodeDirectory, NodeSelection, Participation, log_absentees
from .messages.npy import encoded, viewed
from .messages.replies import PhaseReport, Replies
from .messages.sampling import Choice, Mechanism, Sampling
from .messages.validation import LOGGER, MAX_WEIGHT, Answer, check_metrics, weighted_metrics
from .reply_reader import Reading, ReplyReader
from .signature import NoLegacyMethods, SignatureOfClass, bound, check_methods


class PseudoGradientStrategy(FlowerFedAvg, NoLegacyMethods):
    """Base of the server rules: ``x += server_step(D)`` with ``D = sum_i p_i (x_i - x)``.

    It is a Flower ``FedAvg`` with another aggregation. A rule implements `server_step` and declares its
    settings::

        class SignSGD(PseudoGradientStrategy):
            eta: float = setting(0.01, gt=0, alias="server-lr", description="server learning rate")

            def server_step(self, delta, state, round):
                return self.eta * np.sign(delta)

    The step is added to trainable parameters. All other shared entries (BatchNorm statistics, counters) are
    replaced by their weighted mean. Replies are checked, and summed in partition order, so the result does
    not depend on the order of arrival. An unusable answer is dropped, logged and counted in `phase_report`.
    With fewer than ``min_replies`` usable answers, the model and the rule's state are unchanged.

    Parameters
    ----------
    fraction_train, fraction_evaluate, min_train_nodes, min_evaluate_nodes, min_available_nodes, \
    weighted_by_key, arrayrecord_key, configrecord_key, train_metrics_aggr_fn, evaluate_metrics_aggr_fn
        As in Flower's FedAvg. With ``weighted_by_key=None`` all clients have equal weight.
    trainable : Collection[str], optional
        Names of the entries to step; by default every floating entry, except those named like a BatchNorm
        statistic (``running_mean``, ``running_var``, ``num_batches_tracked``).
    tied : Collection[Collection[str]]
        Groups of names of the same tensor (tied weights): ``clip_update_norm`` counts it once.
    ask_partitions : bool
        Whether to query each node's partition id and order nodes by it. Their app must answer the query
        ``partition_id``. Otherwise nodes are ordered by node id.
    query_timeout : float
        Seconds to wait for the answers to this query.
    **settings
        The settings that the class declares.

    Raises
    ------
    ValueError
        For an argument out of its range; the message names it.
    TypeError
        For an unknown argument; for an argument or a method of Flower's legacy strategies.
    """

    helps: ClassVar[tuple[str, ...]] = ()
    """What it is for: names of `core.methods.PURPOSES`, the main one first. Not inherited."""
    requires: ClassVar[Mapping[str, Collection[object]]] = {}
    """Requirements on the run configuration: key -> allowed values."""
    weighs_alike: ClassVar[bool] = False
    """Whether all models have equal weight, independent of the weight of the metrics."""
    of_classes: ClassVar[bool] = False
    """Whether it is about classes; then `rule_state` has `CLASS_COUNTS` before the first round of a run."""
    in_simulations_only: ClassVar[bool] = False
    """Whether it is refused where sites have data of their own."""
    goes_without_model: ClassVar[bool] = False
    """Whether the rule uses answers even if the whole model stays at the clients."""
    extras_like_parameters: ClassVar[bool] = False
    """Whether train messages and their answers each have one more record that is as large as the stepped
    parameters. A simulated clock counts it."""
    asks: ClassVar[Mapping[str, bool | int | float | str]] = {}
    """What train messages say beside the settings, by its name on the wire: what clients are to report."""
    reads_extras_anywhere: ClassVar[bool] = False
    """Whether a simulation may call `read_extras` in a worker process: it must depend only on the answer, the
    model sent and the rule's settings. Not inherited: each class sets it for its own method."""
    keeps_models: ClassVar[bool] = False
    """Whether it keeps several models, and each client has one of them; see `several_models`."""
    clients_choose: ClassVar[bool] = False
    """Whether clients get all of these models, and each takes one."""
    post_processes_mean: ClassVar[bool] = False
    """Whether `server_step` uses nothing of the answers but ``delta``: no `Round.means`, no `Round.metrics`.
    Only such a rule goes with a `Mechanism`. Not inherited: each class sets it for its own method."""

    # Between underscores, since a subclass written for Flower may define `mean` or `_mean` itself.
    _seed_: int | None = setting(None, ge=0, description="seed of the sampling of nodes; by default random")
    _mean_: MeanKind = setting(
        "weighted",
        description="mean over clients; all but weighted are robust, and all but weighted and "
        "geometric-median weight clients equally",
    )
    _trim_: float = setting(
        0.1, ge=0, lt=0.5, description="fraction that the trimmed mean leaves out at each end"
    )
    _clip_update_norm_: float = setting(
        0.0, ge=0, description="bound on the L2 norm of a client's whole update x_i - x; 0 for none"
    )
    _max_weight_: float = setting(
        0.0,
        ge=0,
        le=MAX_WEIGHT,
        alias="max-num-examples",
        description="refuse an answer that claims more training examples; 0 for 2^53",
    )
    _min_replies_: int = setting(1, ge=1, description="usable answers needed to update the model")
    _node_timeout_: float = setting(600.0, ge=0, description="seconds to wait for nodes to connect")

    _train_phase_ = TrainPhase()
    """Set by every `configure_train`; `aggregate_train` reads it once and passes it on."""

    __signature__ = SignatureOfClass()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        check_methods(type(self))
        flowers, others, settings = bound(type(self), args, kwargs)
        super().__init__(**flowers)
        for attribute, value in settings.items():
            setattr(self, attribute, value)
        self._sampling_seed_ = secrets.randbits(64) if self._seed_ is None else self._seed_
        self.train_metrics_aggr_fn = flowers.get("train_metrics_aggr_fn") or weighted_metrics
        self.evaluate_metrics_aggr_fn = flowers.get("evaluate_metrics_aggr_fn") or weighted_metrics
        self.rule_state = RuleState()
        """The rule's state. It can be saved and restored between rounds."""
        self._trainable_names_: Collection[str] | None = others["trainable"]
        self._tied_names_: Collection[Collection[str]] = others["tied"]
        self._takes_sums_ = False
        self.node_directory = NodeDirectory(
            others["ask_partitions"], self._node_timeout_, others["query_timeout"]
        )
        """The connected nodes and their partitions."""
        self.node_participation: Participation = Everybody()
        """Which nodes take part in a round; all by default. Assign another to change it."""
        self.node_selection: NodeSelection | None = None
        """Which of them train; a uniform sample by default. Assign another to change it."""
        self.node_choice: Choice | None = None
        """Which of the clients that are available may train, by partition; all by default."""
        self.expected_metrics = ExpectedMetrics()
        """The allowed metrics of both phases; anything by default. Assign another to change it."""
        self._further_names_ = FurtherNames()
        self.mechanism: Mechanism | None = None
        """Differential privacy of a run; none by default. Assign one before the first round."""
        self._buffer_: Buffer | None = None
        """Who trains which version of the model under an asynchronous protocol; none by default. Assign one
        before each round. `goes_with_buffers` says with which rules."""
        self._phase_replies_ = Replies(self.node_directory)

    @property
    def phase_report(self) -> PhaseReport:
        """The metrics and failures of the current or last phase."""
        return self._phase_replies_.report

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        """Return the step that is added to the parameters.

        Parameters
        ----------
        delta : Vector
            The pseudo-gradient over all stepped parameters, one flat float vector. The step has the same
            shape and dtype, and may be computed in place in ``delta``.
        state : RuleState
            The rule's state: ``state.vector("m", like=delta)``.
        round : Round
            The round, with the means of the vectors from `read_extras`.
        """
        raise TypeError(f"{type(self).__name__} does not define server_step(delta, state, round)")

    def extra_records(self, state: RuleState, round: Round) -> dict[str, ArrayRecord]:
        """Return further records for the training clients."""
        return {}

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        """Read further vectors from an answer. Raise `ReplyRefused` to drop the answer."""
        return Extras()

    def answer_weights(self, asked: Sequence[int], state: RuleState) -> Mapping[int, float] | None:
        """Return the weights of the answers by partition; None for those that the answers report.

        ``asked`` are the partitions of the clients that were asked to train. If all that answer have weight
        0, the model stays. Not with `weighs_alike`.
        """
        return None

    def ahead(self, state: RuleState, like: Vector) -> Vector | None:
        """Return the difference between the parameters that are sent and those of the model that counts.

        None if they are the same model. ``like`` is a vector over all stepped parameters.
        """
        return None

    def counted(self, arrays: ArrayRecord) -> ArrayRecord:
        """Return the model that counts, to be evaluated and kept, given the one that is sent next."""
        sent = {name: viewed(array) for name, array in arrays.items()}
        if type(self).ahead is PseudoGradientStrategy.ahead or not sent:
            return arrays
        layout = self.new_round(0, TrainPhase(sent)).layout
        ahead = self.ahead(self.rule_state, layout.flatten_parameters(sent))
        if ahead is None:
            return arrays
        moved = layout.moved(layout.parameters, sent, -ahead, layout.dtypes[0])
        counted = {name: encoded(entry) for name, entry in moved}
        return ArrayRecord({name: counted.get(name, array) for name, array in arrays.items()})

    def new_round(self, server_round: int, phase: TrainPhase) -> Round:
        """Return the round before its answers are read."""
        sent = phase.sent()
        trainable = steppable(sent) if self._trainable_names_ is None else self._trainable_names_
        layout = Layout(sent, trainable, self._tied_names_)
        return Round(server_round, self.rule_state.updates + 1, layout, sent, phase.num_nodes)

    def summary(self) -> None:
        """Log the settings."""
        LOGGER.info("\t├──> %s settings:", type(self).__name__)
        for attribute in declared(type(self)):
            value = self._sampling_seed_ if attribute == "_seed_" else getattr(self, attribute)
            LOGGER.info("\t│\t├── %s: %s", attribute.strip("_"), value)
        super().summary()

    def _reading_(self) -> Reading:
        """Return how the answers of a round are read and weighted."""
        return Reading(
            mean=partial(new_mean, self._mean_, self._trim_),
            max_weight=self._max_weight_ or MAX_WEIGHT,
            max_norm=self._clip_update_norm_,
            weighs_alike=self.weighs_alike,
            takes_sums=self._takes_sums_,
            keeps_answers=self.train_metrics_aggr_fn is not weighted_metrics,
            arrays_key=self.arrayrecord_key,
            weight_key=self.weighted_by_key,
            expected=self.expected_metrics,
            new_round=self.new_round,
            read_extras=self.read_extras,
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return messages with the model for the nodes that train in this round."""
        model = {name: viewed(array) for name, array in arrays.items()}
        self._train_phase_ = TrainPhase(model).under(self.mechanism)
        if self._buffer_:
            return self.__configure_buffer(self._buffer_, server_round, config, grid)
        return self.__configure(MessageType.TRAIN, server_round, arrays, config, grid)

    def __configure_buffer(
        self, buffer: Buffer, server_round: int, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return messages to the buffer's clients, each with the version of the model that it trains."""
        config[SERVER_ROUND] = server_round
        least = 0 if buffer.messages else 1
        nodes = self.node_directory.connected(grid, least, f"round {server_round}, train: a buffer")
        holding = {self.node_directory.partition(node): node for node in nodes}
        sent = buffer.addressed(holding, (self.arrayrecord_key, self.configrecord_key), config)
        log_absentees(server_round, len(nodes), len(nodes), len(buffer.answers), len(sent.answers))
        self._train_phase_ = replace(self._train_phase_, num_nodes=len(nodes), buffer=sent)
        self._phase_replies_.expect(MessageType.TRAIN, server_round, list(sent.messages))
        return list(sent.messages)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return messages with the model for the nodes that evaluate it in this round."""
        return self.__configure(MessageType.EVALUATE, server_round, arrays, config, grid)

    def __configure(
        self, phase: str, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        training = phase == MessageType.TRAIN
        fraction = self.fraction_train if training else self.fraction_evaluate
        sent: list[Message] = []
        if fraction > 0:
            config[SERVER_ROUND] = server_round
            content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
            minimum = self.__connected(phase, server_round, grid)
            who = Sampling(
                self.node_directory,
                self.node_participation,
                server_round,
                fraction,
                minimum,
                lambda: (
                    self._sampling_seed_,
                    self.rule_state.next_draw(phase, server_round),
                    int(training),
                ),
            )
            chosen = self.__to_train(who, content) if training else who.to_evaluate()
            sent = list(self._construct_messages(content, chosen, phase))
        self._phase_replies_.expect(phase, server_round, sent)
        return sent

    def __connected(self, phase: str, server_round: int, grid: Grid) -> int:
        """Wait until enough nodes are connected for a phase; return how many of them are sampled at least."""
        wanted = {"min_train_nodes": self.min_train_nodes, "min_replies": self._min_replies_}
        if phase != MessageType.TRAIN:
            wanted = {"min_evaluate_nodes": self.min_evaluate_nodes}
        minimum = max(wanted.values())
        wanted["min_available_nodes"] = self.min_available_nodes
        title = f"round {server_round}, {phase}: {max(wanted, key=lambda name: wanted[name])}"
        self.node_directory.connected(grid, max(1, *wanted.values()), title)
        return minimum

    def __to_train(self, who: Sampling, content: RecordDict) -> list[int]:
        """Return the nodes that train; complete the content that they are sent."""
        if self.mechanism:  # with one, a round without answers is valid
            chosen, count = who.by_mechanism(self.mechanism, self.node_choice)
        else:
            chosen, count = who.to_train(self.node_choice, self.node_selection, content)
        content.config_records[self.configrecord_key].update({**self._train_phase_.bounds(), **self.asks})
        self._train_phase_ = replace(self._train_phase_, num_nodes=count)
        if content[self.arrayrecord_key] or self.goes_without_model:
            round = self.new_round(who.server_round, self._train_phase_)
            content.update(self.extra_records(self.rule_state, round))
        return chosen

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the next model and the mean train metrics; (None, None) with too few usable answers.

        With a `Mechanism` there is always a next model, and no metrics without a usable answer.

        If no model was sent (mocks, empty initial arrays), the result is the mean of the answers, for rules
        whose step is that mean.

        Raises
        ------
        InconsistentMessageReplies
            When all answers differ from the model that was sent in the same way.
        AggregationError
            When the rule needs the model that was sent and there is none; when its step makes the model not
            finite.
        """
        collected = self.collect_train(server_round, replies)
        return self.step_train(collected) if collected else (None, None)

    def collect_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        """Return the input of `step_train`: answers are checked and summed on arrival, to bound memory.

        None with too few usable answers. It does not change the rule's state.
        """
        phase = self._train_phase_
        if self.mechanism and not (phase.bound and phase.model):
            raise AggregationError(f"{type(self).__name__} needs configure_train with a model")
        reading = ReplyReader(self._reading_(), server_round, phase)
        sent = self._phase_replies_.count(MessageType.TRAIN)
        reading.weights = self.answer_weights(self._phase_replies_.partitions(), self.rule_state)
        fold = Fold(reading.new_partial_sum, sent)
        for position, partition, read in self._phase_replies_.usable(
            MessageType.TRAIN, server_round, self._screened_(replies, is_train=True), reading.read
        ):
            if self.mechanism and position >= sent:
                continue  # answers no message of this round: its client could count twice
            self._further_names_.admit(server_round, read.metrics, self.expected_metrics)
            reading.add(fold, position, partition, read)
            self.phase_report.metrics[partition] = read.metrics
            self.phase_report.states[partition] = read.states
        usable, wanted = len(reading.contents), ""
        if self.mechanism:
            return reading, fold
        if reading.round is None or usable < self._min_replies_:
            wanted = f"min_replies is {self._min_replies_}"
        elif reading.is_weightless:
            usable, wanted = 0, f"{type(self).__name__} gives the others weight 0"
        elif usable < (least := named_mean(self._mean_).least):
            wanted = f"mean {self._mean_!r} needs {least}"
        if wanted:
            self._phase_replies_.too_few(usable, wanted)
        return None if wanted else (reading, fold)

    def step_train(self, collected: Any) -> tuple[ArrayRecord, MetricRecord | None]:
        """Return the next model and the mean train metrics, from what `collect_train` returned."""
        reading, fold = collected
        contents, was_sent = reading.contents, bool(reading.phase.model)
        if self.mechanism:
            updated = self.__published(self.mechanism, reading, fold.result())
        else:
            means = fold.result().means(self.rule_state if was_sent else None)
            delta, statistics = means.pop(PARAMETERS), means.pop(STATISTICS)
            round = replace(reading.round, num_answers=len(contents), metrics=reading.metrics, means=means)
            updated = self._updated_(round, reading.reference, delta, statistics, was_sent)
        self.rule_state.updates += 1
        return updated, self.train_metrics_aggr_fn(contents, self.weighted_by_key) if contents else None

    def __published(self, mechanism: Mechanism, reading: ReplyReader, summed: PartialSum) -> ArrayRecord:
        """Return the next model from what the mechanism publishes, and nothing else."""
        round = reading.round
        assert round
        within = float(summed.total(WITHIN)[0]) if WITHIN in summed.sums else 0.0
        delta = mechanism.publish(round.number, summed.total(PARAMETERS), within)
        delta = delta.astype(round.layout.dtypes[0], copy=False)
        round.layout.tie(delta)
        round = replace(round, num_answers=mechanism.num_answers)
        held = {name: encoded(round.sent[name]) for name in round.layout.statistics}
        statistics = np.zeros(sum(round.sent[name].size for name in held), np.float64)
        return ArrayRecord(
            {**self._updated_(round, reading.reference, delta, statistics, was_sent=True), **held}
        )

    def _updated_(
        self,
        round: Round,
        reference: Mapping[str, NDArray],
        delta: Vector,
        statistics: Vector,
        was_sent: bool,
        steps: bool = True,
    ) -> ArrayRecord:
        """Return the next model, from the means of the differences to the reference.

        Without ``steps`` it is the mean itself.
        """
        layout, constants = round.layout, {}
        if not all_finite(delta):  # attention masks, not weights
            constants = dict(layout.slices(layout.parameters, ~np.isfinite(delta)))
            means = dict(layout.slices(layout.parameters, delta))
            masked = {name: np.where(mask, means[name], reference[name]) for name, mask in constants.items()}
            reference = {**reference, **masked}
            delta[~np.isfinite(delta)] = 0
        if not steps:
            step = delta
        elif was_sent or self.goes_without_model:
            with np.errstate(over="ignore", invalid="ignore"):  # the result is checked below
                step = self.server_step(delta, self.rule_state, round)
        else:
            state = RuleState()
            step = self.server_step(delta.copy(), state, round)
            if state.vectors or not np.array_equal(step, delta):
                raise AggregationError(
                    f"{type(self).__name__} needs the model that was sent, and there is none: "
                    "call configure_train with a model before aggregate_train"
                )
        step = checked_step(step, delta, type(self).__name__)
        entries: dict[str, Array] = {}
        with np.errstate(over="ignore", invalid="ignore"):
            for name, entry in layout.moved(layout.parameters, reference, step, delta.dtype):
                if not (all_finite(entry) or (np.isfinite(entry) | constants.get(name, False)).all()):
                    raise AggregationError(
                        f"round {round.number}, train: {type(self).__name__} diverged: "
                        f"its step makes {name} not finite"
                    )
                entries[name] = encoded(entry)
        for name, entry in layout.moved(layout.statistics, reference, statistics, statistics.dtype):
            entries[name] = encoded(entry)
        return ArrayRecord({name: entries[name] for name in layout.shapes})

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the mean evaluate metrics, or None without a usable answer.

        Raises
        ------
        InconsistentMessageReplies
            When the weight is missing from, or invalid in, all answers in the same way.
        """
        contents: list[RecordDict] = []
        for _, partition, (content, metrics, states) in self._phase_replies_.usable(
            MessageType.EVALUATE, server_round, self._screened_(replies, is_train=False), self._read_evaluate_
        ):
            self._further_names_.admit(server_round, metrics, self.expected_metrics)
            self.phase_report.metrics[partition] = metrics
            self.phase_report.states[partition] = states
            self._note_evaluation_(partition, content, self.phase_report)
            contents.append(content)
        return self.evaluate_metrics_aggr_fn(contents, self.weighted_by_key) if contents else None

    def _screened_(self, replies: Iterable[Message], is_train: bool) -> Iterable[Message]:
        """Filter the replies by `_check_and_log_replies` if a subclass overrides it."""
        if type(self)._check_and_log_replies is FlowerFedAvg._check_and_log_replies:
            return replies
        return self._check_and_log_replies(replies, is_train=is_train)[0]

    def _read_evaluate_(self, content: RecordDict) -> tuple[RecordDict, MetricRecord, dict[str, NDArray]]:
        with refusing():
            _, metrics = check_metrics(content, self.weighted_by_key)
            return content, metrics, self.expected_metrics.read(content, metrics)

    def _note_evaluation_(self, partition: int, content: RecordDict, report: PhaseReport) -> None:
        """Note what else a client says of its evaluation; nothing by default."""
