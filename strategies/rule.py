"""What a server rule is told and may say: its settings, its constructor, the hooks of a round."""

import secrets
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg

from .aggregation.fold import Extras, Round, TrainPhase
from .aggregation.means import MeanKind
from .aggregation.rule_state import RuleState
from .aggregation.vectors import Layout, Vector, steppable
from .expected import ExpectedMetrics
from .messages.nodes import Everybody, NodeDirectory, Participation
from .messages.replies import PhaseReport, Replies
from .messages.validation import LOGGER, MAX_WEIGHT, Answer, weighted_metrics
from .privacy import warn_of_wrapper
from .settings import declared, setting
from .signature import SignatureOfClass, bound

CURRENT_ARRAYS = property(
    lambda rule: rule._train_phase_.model,
    lambda rule, arrays: setattr(rule, "_train_phase_", replace(rule._train_phase_, model=arrays)),
    doc="The model that was sent last, in the classes of which Flower's have an attribute of this name.",
)


class ServerRule(FlowerFedAvg):
    """A Flower ``FedAvg`` with a step of its own; `PseudoGradientStrategy` adds how a round goes."""

    requires: ClassVar[Mapping[str, Collection[object]]] = {}
    """What the rule needs of the rest of a run: keys of the run configuration -> the values it goes with."""
    weighs_alike: ClassVar[bool] = False
    """Whether the rule takes the plain mean of the models, whatever weighs the metrics."""
    goes_without_model: ClassVar[bool] = False
    """Whether the rule has a use for answers when all of the model stays at home."""
    reads_extras_anywhere: ClassVar[bool] = False
    """Whether a simulation may call `read_extras` in another process than the server's: it needs the answer,
    the model sent and the rule's settings only. It is not inherited: a class says it of its own method."""

    # Between underscores: a subclass written for Flower may well have a `mean` or a `_mean` of its own.
    _seed_: int | None = setting(
        None, ge=0, description="decides, with the round, which nodes are sampled; without one it is drawn"
    )
    _mean_: MeanKind = setting(
        "weighted",
        description="the mean over clients; median and trimmed withstand liars, and count all alike",
    )
    _trim_: float = setting(
        0.1, ge=0, lt=0.5, description="share that the trimmed mean leaves out at each end"
    )
    _clip_update_norm_: float = setting(
        0.0, ge=0, description="bound on the L2 norm of a client's whole update x_i - x; 0 for none"
    )
    _max_weight_: float = setting(
        0,
        ge=0,
        le=MAX_WEIGHT,
        alias="max-num-examples",
        description="refuse an answer that claims more training examples; 0 for 2^53",
    )
    _min_replies_: int = setting(1, ge=1, description="usable answers that an update of the model takes")
    _node_timeout_: float = setting(600.0, ge=0, description="seconds to wait for nodes to connect")

    _train_phase_ = TrainPhase()
    """Replaced by every `configure_train`; `aggregate_train` reads it once, and passes it on."""

    __signature__ = SignatureOfClass()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        flowers, others, settings = bound(type(self), args, kwargs)
        super().__init__(**flowers)
        for attribute, value in settings.items():
            setattr(self, attribute, value)
        self._sampling_seed_ = secrets.randbits(64) if self._seed_ is None else self._seed_
        self.train_metrics_aggr_fn = flowers.get("train_metrics_aggr_fn") or weighted_metrics
        self.evaluate_metrics_aggr_fn = flowers.get("evaluate_metrics_aggr_fn") or weighted_metrics
        self.rule_state = RuleState()
        """What the rule remembers; it may be saved and put back between rounds."""
        self._trainable_names_: Collection[str] | None = others["trainable"]
        self._tied_names_: Collection[Collection[str]] = others["tied"]
        self._takes_sums_ = False
        self.node_directory = NodeDirectory(
            others["ask_partitions"], self._node_timeout_, others["query_timeout"]
        )
        """The nodes met so far, in partition order."""
        self.node_participation: Participation = Everybody()
        """Which of them take part in a round; all, unless it is replaced."""
        self.expected_metrics = ExpectedMetrics()
        """What their metrics must be, of either phase; anything, unless it is replaced."""
        self._phase_replies_ = Replies(self.node_directory)

    @property
    def phase_report(self) -> PhaseReport:
        """What came back in the current phase, or the last."""
        return self._phase_replies_.report

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

    def new_round(self, server_round: int, phase: TrainPhase) -> Round:
        """Return the round, before its answers."""
        sent = phase.sent()
        trainable = steppable(sent) if self._trainable_names_ is None else self._trainable_names_
        layout = Layout(sent, trainable, self._tied_names_)
        return Round(server_round, self.rule_state.updates + 1, layout, sent, phase.num_nodes)

    def summary(self) -> None:
        """Log the settings, and what a privacy wrapper around the rule would need."""
        LOGGER.info("\t├──> %s settings:", type(self).__name__)
        for attribute in declared(type(self)):
            value = self._sampling_seed_ if attribute == "_seed_" else getattr(self, attribute)
            LOGGER.info("\t│\t├── %s: %s", attribute.strip("_"), value)
        super().summary()
        warn_of_wrapper(self)
