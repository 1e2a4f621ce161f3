"""`ServerRule`: the settings, the constructor and the hooks of a server rule."""

import secrets
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg

from .aggregation.buffers import Buffer
from .aggregation.fold import Extras, Round, TrainPhase
from .aggregation.means import MeanKind
from .aggregation.mechanism import Mechanism
from .aggregation.rule_state import RuleState
from .aggregation.vectors import Layout, Vector, steppable
from .expected import ExpectedMetrics, FurtherNames
from .flower_wrappers import warn_of_wrapper
from .messages.nodes import Everybody, NodeDirectory, NodeSelection, Participation
from .messages.replies import PhaseReport, Replies
from .messages.validation import LOGGER, MAX_WEIGHT, Answer, weighted_metrics
from .settings import declared, setting
from .signature import SignatureOfClass, bound

CURRENT_ARRAYS = property(
    lambda rule: rule._train_phase_.model,
    lambda rule, arrays: setattr(rule, "_train_phase_", replace(rule._train_phase_, model=arrays)),
    doc="The model that was sent last, as in Flower's classes with an attribute of this name.",
)


class ServerRule(FlowerFedAvg):
    """A Flower ``FedAvg`` with settings and hooks; `PseudoGradientStrategy` adds the course of a round."""

    requires: ClassVar[Mapping[str, Collection[object]]] = {}
    """Requirements on the run configuration: key -> allowed values."""
    weighs_alike: ClassVar[bool] = False
    """Whether all models have equal weight, independent of the weight of the metrics."""
    goes_without_model: ClassVar[bool] = False
    """Whether the rule uses answers even if the whole model stays at the clients."""
    extras_like_parameters: ClassVar[bool] = False
    """Whether train messages and their answers each have one more record that is as large as the stepped
    parameters. A simulated clock counts it."""
    reads_extras_anywhere: ClassVar[bool] = False
    """Whether a simulation may call `read_extras` in a worker process: it must depend only on the answer, the
    model sent and the rule's settings. Not inherited: each class sets it for its own method."""
    post_processes_mean: ClassVar[bool] = False
    """Whether `server_step` uses nothing of the answers but ``delta``: no `Round.means`, no `Round.metrics`.
    Only such a rule goes with a `Mechanism`. Not inherited: each class sets it for its own method."""

    # Between underscores, since a subclass written for Flower may define `mean` or `_mean` itself.
    _seed_: int | None = setting(
        None, ge=0, description="seed of the sampling of nodes; random if none is given"
    )
    _mean_: MeanKind = setting(
        "weighted",
        description="mean over clients; median and trimmed are robust, and weight all clients equally",
    )
    _trim_: float = setting(
        0.1, ge=0, lt=0.5, description="fraction that the trimmed mean leaves out at each end"
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
    _min_replies_: int = setting(1, ge=1, description="usable answers needed to update the model")
    _node_timeout_: float = setting(600.0, ge=0, description="seconds to wait for nodes to connect")

    _train_phase_ = TrainPhase()
    """Set by every `configure_train`; `aggregate_train` reads it once and passes it on."""

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

    # ---- hooks of a rule ----------------------------------------------------------------------------

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

    def new_round(self, server_round: int, phase: TrainPhase) -> Round:
        """Return the round before its answers are read."""
        sent = phase.sent()
        trainable = steppable(sent) if self._trainable_names_ is None else self._trainable_names_
        layout = Layout(sent, trainable, self._tied_names_)
        return Round(server_round, self.rule_state.updates + 1, layout, sent, phase.num_nodes)

    def summary(self) -> None:
        """Log the settings, and a warning if a privacy wrapper needs other ones."""
        LOGGER.info("\t├──> %s settings:", type(self).__name__)
        for attribute in declared(type(self)):
            value = self._sampling_seed_ if attribute == "_seed_" else getattr(self, attribute)
            LOGGER.info("\t│\t├── %s: %s", attribute.strip("_"), value)
        super().summary()
        warn_of_wrapper(self)
