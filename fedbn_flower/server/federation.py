"""The protocol of a run, round by round, on any Grid."""

import logging
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType
from flwr.serverapp import Grid

from fedbn_flower.clients.modules.surroundings import usual_surroundings
from fedbn_flower.clients.returned import WrongResult
from fedbn_flower.strategies import PhaseReport, PseudoGradientStrategy
from fedbn_flower.strategies.partial_sums import takes_sums

from ..config.run_config import RunConfig
from ..core.errors import refuse
from ..core.ground.columns import HALVES
from ..core.ground.settings import overridden
from ..core.ground.wire import (
    CASES,
    CHECKPOINT_ROUND,
    CLASSES,
    DIGEST_OF_START,
    EVAL_SPLITS,
    RECALIBRATE,
    RUN,
)
from ..core.logs import notice
from ..core.notes import Note
from ..extensions import Moment
from ..job.checks.model_fit import check_fit, decides, privacy_of
from ..job.checks.notices import notices, rare_event_by_accuracy
from ..job.checks.unused_keys import SIMULATION, Caller, unused_keys, unused_line
from ..job.inputs import inputs_of
from ..job.rule import errors_of_custom_rules, make_strategy, state_of, step_more
from ..job.what_is_learnt import what_is_learnt
from ..privacy.example_privacy import ExamplePrivacy
from ..records.cases import cases_used, make_exact
from ..records.checkpoint import Checkpoint, RunTotals
from ..records.events import Observer, RoundResult, RunInfo, prefix_of
from ..records.metrics import medians, pooled_metrics, round_means, spread
from .built_in_extensions import collaborators
from .checks import check_nodes, of_empty_rounds, of_several_models
from .evaluation import GlobalEvaluation
from .exchange import Exchange, Simulates
from .extensions import extensions_of
from .one_exchange import JointEvaluation, why_separate
from .participation import buffers_of, clock_of, end_of_round, goes_by_partition, participation
from .questions import check_names, learn_class_counts, sites_scale, sites_sizes
from .refusals import ONE_LINE_ERRORS, one_line_ends_the_run
from .rounds import CollectedRound, History, TrainedRound, add_round, last_sure_checkpoint
from .site_memories import FoundMemory, SiteMemories, noting

LOGGER = logging.getLogger("flwr.fedbn")


class Federation:
    """One run: the strategy, the shared model, the server's evaluation.

    Parameters
    ----------
    config : RunConfig
        The run's.
    caller : Caller
        Who runs it.

    Raises
    ------
    UserError
        If the data cannot be read or do not fit the configuration, or the rule or client cannot be used.
    """

    @usual_surroundings()
    def __init__(self, config: RunConfig, caller: Caller = SIMULATION) -> None:
        self.config = config
        self.caller = caller
        self.inputs = inputs_of(config)
        self.dataset = self.inputs.dataset
        self.problem = self.dataset.problem
        last = inputs_of(config.at_round(config.rounds))
        for inputs in {self.inputs, last}:
            check_fit(inputs)
        self.privacy = privacy_of(last)
        model, self.initial = self.inputs.model()
        self.evaluation = GlobalEvaluation(self.inputs, model)
        self.shares = bool(self.inputs.split.shared)
        """Whether any entry of the model is shared."""
        refuse(of_empty_rounds(self.inputs))
        self.decide_by = decides(self.inputs)
        """Which metric selects rounds, the clients' or the server's: one of `records.events.DECIDING`."""
        refuse(of_several_models(self.inputs))
        self.strategy = make_strategy(self.inputs)
        self.clock = clock_of(self.inputs)
        who = replace(participation(config), clock=self.clock, untested=self.inputs.untested)
        self.strategy.node_participation = who
        self.strategy.node_directory.needed_by = goes_by_partition(self.inputs)
        self.buffers = buffers_of(self.inputs, self.clock)
        self.run_name = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}"
        """The run's name for clients; names sort by start time."""
        self.totals = RunTotals()
        self.info = RunInfo(
            config=config.to_user_config(),
            folder=None,
            first_round=1,
            rounds=config.rounds,
            dataset=config.dataset,
            partition=config.partition,
            client_names=self.inputs.client_names,
            metrics=self.problem.metrics,
            compared_by=self.problem.compared_by,
            higher_is_better=self.problem.higher_is_better,
            by_rare_accuracy=bool(rare_event_by_accuracy(self.inputs)),
        )
        ends = end_of_round(self.clock, self.buffers)
        made_of = {
            **{cls.__name__.lower(): cls.made_of(self) for cls in config.built_in_extensions},
            **collaborators(config, self.inputs, self.privacy, ends),
        }
        self.extensions = extensions_of(config, self.info, made_of)
        self.memories = SiteMemories(self.strategy.node_directory)
        self.last_round = 0
        """The last round that has been completed."""
        self.names: dict[str, str] = {}
        """Digests of the other sites' class names, for sites that connect later; see `check_names`."""
        self.one_exchange = False
        """Whether evaluations travel with the next round's train messages."""
        self.observers: Sequence[Observer] = ()
        """Notified of each complete round."""

    @cached_property
    def learnt(self) -> tuple[Note, ...]:
        """The table shown before the first round: task, data, clients."""
        return what_is_learnt(self.inputs)

    @cached_property
    def warnings(self) -> list[str]:
        """Warnings about settings that are valid, but probably not intended."""
        of_privacy = self.privacy.notices() if self.privacy else ()
        found = [*notices(self.inputs), *self.extensions.notices, *of_privacy, self.unused_line]
        return [line for line in found if line]

    @property
    def unused(self) -> list[str]:
        """The given keys that nothing in the run reads."""
        return list(unused_keys(inputs_of(self.config), self.caller))

    @property
    def unused_line(self) -> str:
        """The message about these keys; empty if there are none."""
        return unused_line(inputs_of(self.config), self.caller)

    @one_line_ends_the_run()
    def ask_sizes(self, grid: Grid) -> None:
        """Ask sites with data of their own for their number of examples, if privacy accounting depends on it.

        Raises
        ------
        UserError, RunFailed
            As `run`; if a site does not answer.
        """
        if isinstance(self.privacy, ExamplePrivacy) and not self.privacy.known:
            check_nodes(self.strategy, grid, self.config.num_clients)
            self.privacy.learn(sites_sizes(self.inputs, self.strategy, grid))

    @usual_surroundings()
    @one_line_ends_the_run()
    def run(
        self, grid: Grid, observers: Iterable[Observer], checkpoint: Checkpoint | None = None
    ) -> ArrayRecord:
        """Run all rounds, or those after the checkpoint; return the last shared model.

        Raises
        ------
        UserError
            If the federation has more nodes than ``num-clients``.
        RunFailed
            If no round had enough usable answers, all answers of a phase were refused for one reason, too few
            nodes connected in time, every site lost its memory of a resumed run, or the model diverged.
        """
        config, strategy = self.config, self.strategy
        check_nodes(strategy, grid, config.num_clients, 0 if self.clock else config.concurrency)
        for warning in self.warnings:
            notice(warning)
        if (weights := self.inputs.initial().weights) and weights.complete:
            LOGGER.info("%s", weights)
        self.names = check_names(self.inputs, strategy, grid)
        arrays, first_round = ArrayRecord(), 1
        if checkpoint:
            arrays, first_round = checkpoint.arrays, checkpoint.server_round + 1
            strategy.rule_state = state_of(checkpoint)
            self.run_name, account = checkpoint.run, checkpoint.counters.get("account", {})
            self.totals = RunTotals.of(account)
            before_these = dict.fromkeys(self.extensions.all, account)  # up to version 0.2
            states = checkpoint.counters.get("extensions", before_these)
            self.extensions.restore(states, checkpoint.extensions)
            memories = checkpoint.counters.get("memories", {})
            self.memories = SiteMemories(strategy.node_directory, resumes=True, **memories)
            if self.buffers:
                self.buffers.versions = dict(checkpoint.versions)
        self.totals.normalization = self.totals.normalization or sites_scale(self.inputs, strategy, grid)
        learn_class_counts(self.inputs, strategy, grid)
        history = History()
        self.observers, self.one_exchange = tuple(observers), self._has_one_exchange(grid)
        waiting: TrainedRound | None = None  # its evaluation is sent with the next round's train messages
        for server_round in range(first_round, config.rounds + 1):
            arrays = self._shared_in(server_round, arrays)
            collected = self._collect(server_round, arrays, grid, waiting)
            if waiting and self._finish(waiting, history).last:
                break
            trained = self._step(collected)
            arrays, waiting = trained.model, trained if trained.joint else None
            if not waiting and self._finish(trained, history).last:
                break
        arrays = history.result.travels if history.result else arrays
        if not strategy.rule_state.updates or (history.sampled and not history.trained):
            raise history.refusals.never_updated(config, history.sampled)
        for line in history.refusals.lines():
            LOGGER.warning("%s", line)
        history.divergence.check_end(config.client_lr)
        if config.share_evaluating and history.found_nobody:
            LOGGER.warning(
                "round %d, the last: nobody was evaluated, so the summary has no metrics", self.last_round
            )
        return strategy.counted(arrays)

    def _has_one_exchange(self, grid: Grid) -> bool:
        """Return whether evaluations travel with the next round's train messages; log the reason if not."""
        config = self.config
        why = why_separate(config, self.strategy)
        if isinstance(grid, Simulates):
            return False
        evaluates = config.share_evaluating and not self._evaluates_after_training
        if why and evaluates and config.evaluate_with_training != "off":
            LOGGER.info("clients are asked twice a round, to train and to evaluate: %s", why)
        return not why

    def _decided(self, result: RoundResult) -> RoundResult:
        """Return the round as changed by the extensions."""
        result = self.extensions.after_round(result)
        self.totals.stopped = self.totals.stopped or result.stopped or None
        return result

    def _shared_in(self, server_round: int, arrays: ArrayRecord) -> ArrayRecord:
        """Return the shared entries of a round, given the last one's; switch to the round's inputs.

        An entry that becomes shared in this round (``unfreeze-at``) has its initial value.
        """
        before, self.inputs = self.inputs, inputs_of(self.config.at_round(server_round))
        if self.inputs is not before:
            model, _ = self.inputs.model()
            self.evaluation = GlobalEvaluation(self.inputs, model)
            step_more(self.strategy, self.inputs, before)
        return ArrayRecord(
            {n: arrays[n] if n in arrays else Array(self.initial[n]) for n in self.inputs.split.shared}
        )

    def tell_complete(self, grid: Grid) -> None:
        """Tell sites that the run is complete, once its folder is written."""
        self.memories.tell_complete(grid, self.run_name, self.last_round, self.config.round_timeout)

    def _collect(
        self, server_round: int, arrays: ArrayRecord, grid: Grid, waiting: TrainedRound | None
    ) -> CollectedRound:
        """Have clients train, and read their answers, along with those to the pending evaluation."""
        began, strategy, found = time.monotonic(), self.strategy, list[FoundMemory]()
        moment = self._moment(server_round, grid, waiting.joint if waiting else None)
        self.extensions.prepare(moment)
        splits = moment.splits if self._evaluates_after_training else ""
        told = ConfigRecord({**self.config.client_settings, **self._told(MessageType.TRAIN, splits, moment)})
        sent = self.extensions.send(arrays, moment)
        answers = noting(self._answers(moment, arrays, sent, told), found)
        collected = CollectedRound(moment, arrays, sent, answers, None, found, 0.0)
        if not self._reads_its_answers:
            with errors_of_custom_rules(self.config, ONE_LINE_ERRORS):
                collected.answers = strategy.collect_train(server_round, answers)
            collected.train = strategy.phase_report
        collected.seconds = time.monotonic() - began
        return collected

    def _step(self, collected: CollectedRound) -> TrainedRound:
        """Apply the server rule to the round's answers."""
        began, strategy, moment, before = time.monotonic(), self.strategy, collected.moment, collected.before
        updated: ArrayRecord | None = None
        metrics: Mapping[str, object] | None = None
        with errors_of_custom_rules(self.config, ONE_LINE_ERRORS):
            if collected.train is None:
                found = strategy.aggregate_train(moment.number, collected.answers)
                updated, metrics = _checked_step(strategy, "aggregate_train", found)
                collected.train = strategy.phase_report
            elif collected.answers:
                found = strategy.step_train(collected.answers)
                updated, metrics = _checked_step(strategy, "step_train", found)
        self.memories.note(moment.exchange.grid, moment.number, MessageType.TRAIN, collected.memories)
        self.memories.check()
        model = self.extensions.published(updated or before, before, collected.sent, moment)
        counted = strategy.counted(model)
        sent = self.extensions.send(counted, moment) if moment.splits else counted
        trained = TrainedRound(moment, before, model, counted, sent, collected.train, metrics)
        if self.one_exchange and moment.splits and not moment.last:
            trained.joint = JointEvaluation(self._to_evaluate(trained))
            trained.state = strategy.rule_state.snapshot()
        trained.seconds = collected.seconds + time.monotonic() - began
        return trained

    def _finish(self, trained: TrainedRound, history: History) -> RoundResult:
        """Evaluate and record a round; let extensions decide whether it is the best or the last."""
        began, moment = time.monotonic() - trained.seconds, trained.moment
        evaluate, means = self._evaluated(trained)
        others = self._evaluated_by_others(moment, trained.sent) if moment.tests else {}
        result = self._decided(self._recorded(trained, began, evaluate, means, others))
        for observer in self.observers:
            observer.on_round(result)
        self.last_round = result.server_round
        history.note(result)
        return result

    def _moment(self, server_round: int, grid: Grid, joint: JointEvaluation | None) -> Moment:
        """Return the round as extensions see it."""
        config, inputs = self.config, self.inputs
        last = self.extensions.before_round(server_round) or server_round == config.rounds
        due = last or server_round % config.evaluate_every == 0
        tests = due and (last or config.tests_each_round)

        def on_answer(phase: str, done: int, total: int) -> None:
            for observer in self.observers:
                observer.on_answer(server_round, phase, done, total)

        return Moment(
            server_round,
            last,
            config.held_out_splits(final=tests) if due else "",
            tests,
            tuple(inputs.split.shared),
            tuple(inputs.stepped_names),
            inputs.rounded_names,
            self.strategy,
            Exchange(grid, config.round_timeout, takes_sums(self.strategy), on_answer, joint),
            on_answer,
            self.totals,
        )

    def _told(self, phase: str, splits: str, moment: Moment) -> dict[str, Any]:
        """Return what a phase's messages carry in addition to the model and the algorithms' settings."""
        classes = self._counted_classes(moment) if splits else 0
        return {
            RUN: self.run_name,
            **self.totals.normalization,
            CHECKPOINT_ROUND: last_sure_checkpoint(self.config, moment.number - self.one_exchange),
            **({DIGEST_OF_START: digest} if (digest := self.inputs.digest_of_start) else {}),
            **self.names,
            **self.extensions.settings(phase, moment),
            EVAL_SPLITS: ",".join([splits, *HALVES]) if splits and self.config.cross_fits else splits,
            **({CLASSES: classes} if classes else {}),
        }

    def _answers(
        self, moment: Moment, arrays: ArrayRecord, sent: ArrayRecord, told: ConfigRecord
    ) -> Iterable[Message]:
        """Yield the answers to the round's train messages, in order of arrival."""

        def configure() -> Iterable[Message]:
            with errors_of_custom_rules(self.config, ONE_LINE_ERRORS):
                grid = moment.exchange.grid
                found = self.strategy.configure_train(moment.number, sent, told, grid)
                return _checked_messages(self.strategy, "configure_train", found)

        return moment.exchange.train(arrays, configure)

    @property
    def _reads_its_answers(self) -> bool:
        """Whether the rule overrides `aggregate_train`."""
        return bool(overridden(type(self.strategy), PseudoGradientStrategy, ("aggregate_train",)))

    @property
    def _evaluates_after_training(self) -> bool:
        return self.config.eval_model == "local"

    def _counted_classes(self, moment: Moment) -> int:
        """Return how many classes get metrics of their own in a round; 0 for none."""
        return self.dataset.spec.outputs if moment.tests and self.dataset.has_classes else 0

    def _to_evaluate(self, trained: TrainedRound) -> list[Message]:
        """Return the evaluate messages for the next model."""
        told = ConfigRecord(self._told(MessageType.EVALUATE, trained.moment.splits, trained.moment))
        number, grid = trained.moment.number, trained.moment.exchange.grid
        with errors_of_custom_rules(self.config, ONE_LINE_ERRORS):
            found = self.strategy.configure_evaluate(number, trained.sent, told, grid)
            return _checked_messages(self.strategy, "configure_evaluate", found)

    def _evaluated(self, trained: TrainedRound) -> tuple[PhaseReport, dict[str, float]]:
        """Return the clients' evaluation of the next model, and the round's means over clients."""
        strategy, moment = self.strategy, trained.moment
        number, exchange = moment.number, moment.exchange
        after_training = bool(moment.splits) and self._evaluates_after_training
        report, metrics = trained.train if after_training else PhaseReport(), None
        if moment.splits and not after_training:
            answers: Iterable[Message]
            if trained.joint:
                answers = trained.joint.answers
            else:
                answers = exchange.answers(MessageType.EVALUATE, self._to_evaluate(trained))
            found: list[FoundMemory] = []
            with errors_of_custom_rules(self.config, ONE_LINE_ERRORS):
                metrics = strategy.aggregate_evaluate(number, noting(answers, found))
                if not isinstance(metrics, Mapping | None):
                    raise WrongResult(strategy, "aggregate_evaluate", metrics, "a MetricRecord or None")
            report = strategy.phase_report
            self.memories.note(exchange.grid, number, MessageType.EVALUATE, found)
        report.cases = cases_used(exchange.cases, strategy.node_directory, report)
        make_exact(report, prefix_of(moment.splits), self.problem)
        means = round_means(trained.metrics, metrics, report, after_training, self.problem)
        of_half = medians(report.metrics.values(), self.problem) if self.decide_by == "median" else {}
        return report, {**of_half, **means}

    def _evaluated_by_others(self, moment: Moment, sent: ArrayRecord) -> dict[str, PhaseReport]:
        """Return the evaluations of the next model by clients that do not train."""
        told = self._told(MessageType.EVALUATE, moment.splits, moment) | {EVAL_SPLITS: moment.splits}
        of_others = {key: value for key, value in told.items() if key not in (CASES, CLASSES, RECALIBRATE)}
        return self.extensions.evaluate(sent, of_others, moment)

    def _recorded(
        self,
        trained: TrainedRound,
        began: float,
        evaluate: PhaseReport,
        means: Mapping[str, float],
        others: Mapping[str, PhaseReport],
    ) -> RoundResult:
        """Evaluate the round's model on the server; return the round as observers see it."""
        moment, model, train = trained.moment, trained.counted, trained.train
        exchange, classes, problem = moment.exchange, self._counted_classes(moment), self.problem
        of_global, diverged = self.evaluation.evaluate(model, moment.splits, classes, evaluate, exchange.grid)
        seconds = time.monotonic() - began
        add_round(self.totals, moment.number, seconds, exchange, len(train.metrics))
        return RoundResult(
            moment.number,
            seconds,
            model,
            train,
            evaluate,
            means,
            of_global,
            problem.metrics_of_all_classes,
            before=trained.before,
            travels=trained.model,
            splits=moment.splits,
            spread=spread(evaluate.metrics.values(), problem),
            pooled=pooled_metrics(evaluate, means, problem),
            seconds_waited=exchange.seconds,
            bytes_sent=exchange.bytes_sent,
            bytes_received=exchange.bytes_received,
            others=others,
            decide_by=self.decide_by,
            costs=self.totals.costs(),
            diverged=diverged,
            last=moment.last or bool(diverged),
            state=trained.state or self.strategy.rule_state.snapshot(),
        )


def _checked_step(
    rule: PseudoGradientStrategy, method: str, found: object
) -> tuple[ArrayRecord | None, Mapping[str, object] | None]:
    """Return the next model and metrics that a rule's method returned, which may be anybody's."""
    match found:
        case (None | ArrayRecord() as model, None | Mapping() as metrics):
            return model, metrics
    raise WrongResult(rule, method, found, "(an ArrayRecord or None, a MetricRecord or None)")


def _checked_messages(rule: PseudoGradientStrategy, method: str, found: object) -> list[Message]:
    """Return the messages that a rule's method returned, which may be anybody's."""
    messages = list(found) if isinstance(found, Iterable) else found
    if not isinstance(messages, list) or not all(isinstance(one, Message) for one in messages):
        raise WrongResult(rule, method, messages, "Messages")
    return messages
