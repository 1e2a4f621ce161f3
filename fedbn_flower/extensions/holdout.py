"""``holdout-clients``: clients that never train, and on which the model is evaluated as on new ones."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedbn_flower.clients import Problem
from fedbn_flower.strategies import PhaseReport
from fedbn_flower.strategies.messages.gate import refusing
from fedbn_flower.strategies.messages.replies import Replies
from fedbn_flower.strategies.messages.validation import check_metrics

from ..core.errors import Conflict
from ..core.ground.settings import KeyGroup, setting
from ..core.ground.wire import ARRAYS, CASES, CONFIG, NUM_EXAMPLES, OWN_STATISTICS, SERVER_ROUND
from ..records.cases import cases_used, make_exact
from ..records.events import NEW, NEW_AS_RECEIVED, RunInfo, prefix_of
from .base import Moment, ServerHook

PHASE = "new clients"


class HoldoutKeys(KeyGroup):
    """Evaluation"""

    after = "stop-at-target"

    holdout_clients: int = setting(
        0, ge=0, description="clients that never train and are evaluated at the end as new ones"
    )


def num_training(config: Mapping[str, Any]) -> int:
    """Return the number of clients that can train, of a configuration by key."""
    return int(config["num-clients"] - config["holdout-clients"])


class Holdout(ServerHook):
    """Has every held-out client evaluate the model, whenever it is tested.

    If BatchNorm statistics are local, a client without a memory estimates them on its training examples
    (AdaBN). With ``leave-one-site-out`` it always does so, and also evaluates the model as received, even
    with ``adapt-bn``. The strategy neither samples these clients nor averages their metrics.

    Parameters
    ----------
    run : RunInfo
        The run.
    held_out : frozenset[int]
        The partitions that take no part in the rounds.
    keeps_cases : bool
        Whether the run keeps its predictions.
    problem : Problem
        The problem, with the run's metrics.
    """

    place = 50  # before whatever depends on the number of clients that train

    def __init__(self, run: RunInfo, held_out: frozenset[int], keeps_cases: bool, problem: Problem) -> None:
        super().__init__(run)
        self.held_out = held_out
        self.keeps_cases = keeps_cases
        self.problem = problem

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        if num_training(config) < 1:
            most = f"at most {config['num-clients'] - 1}: one client at least is to train (num-clients)"
            yield Conflict("holdout-clients", config["holdout-clients"], most)

    def evaluate(
        self, model: ArrayRecord, settings: Mapping[str, Any], moment: Moment
    ) -> Mapping[str, PhaseReport]:
        if not (moment.tests and self.held_out and moment.shared):
            return {}
        if self.keeps_cases:
            settings = {**settings, CASES: moment.splits.split(",")[-1]}
        if not self.run.config["leave-one-site-out"]:
            return {NEW: self._evaluated(model, settings, moment)}
        received, own = (  # a site keeps the cases of the last evaluation
            self._evaluated(model, {**settings, OWN_STATISTICS: own}, moment) for own in (False, True)
        )
        return {NEW: own, NEW_AS_RECEIVED: received}

    def _evaluated(self, model: ArrayRecord, settings: Mapping[str, Any], moment: Moment) -> PhaseReport:
        report = evaluated_by(self.held_out, PHASE, model, settings, moment)
        if self.keeps_cases:
            report.cases = cases_used(moment.exchange.cases, moment.rule.node_directory, report)
            make_exact(report, prefix_of(moment.splits), self.problem)
        return report


def evaluated_by(
    partitions: Collection[int], phase: str, model: ArrayRecord, settings: Mapping[str, Any], moment: Moment
) -> PhaseReport:
    """Have further clients evaluate, in addition to those that the rule asks; return their answers.

    Parameters
    ----------
    partitions : Collection[int]
        The clients.
    phase : str
        The phase's name in the log.
    model : ArrayRecord
        The model.
    settings : Mapping[str, Any]
        The settings that the message carries.
    moment : Moment
        The round.
    """
    rule, nodes = moment.rule, moment.rule.node_directory
    connected = nodes.connected(moment.exchange.grid, 1, "holdout-clients" if phase == PHASE else phase)
    asked = ConfigRecord({**settings, SERVER_ROUND: moment.number})
    content = RecordDict({ARRAYS: model, CONFIG: asked})
    asked_nodes = [node for node in connected if nodes.partition(node) in partitions]
    if rule.keeps_models:
        messages = list(rule._construct_messages(content, asked_nodes, MessageType.EVALUATE))
    else:
        messages = [Message(content, node, MessageType.EVALUATE) for node in asked_nodes]
    replies = Replies(nodes)
    replies.expect(phase, moment.number, messages)
    answers = moment.exchange.answers(MessageType.EVALUATE, messages, counted=False)

    def read(content: RecordDict) -> tuple[RecordDict, MetricRecord, dict[str, NDArray]]:
        with refusing():
            _, metrics = check_metrics(content, NUM_EXAMPLES)
            return content, metrics, rule.expected_metrics.read(content, metrics)

    for _, partition, (content, metrics, states) in replies.usable(phase, moment.number, answers, read):
        rule._further_names_.admit(moment.number, metrics, rule.expected_metrics)
        replies.report.metrics[partition] = metrics
        replies.report.states[partition] = states
        rule._note_evaluation_(partition, content, replies.report)
    return replies.report
