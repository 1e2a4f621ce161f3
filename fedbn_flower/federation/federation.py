"""The protocol of a run, round by round, on any Grid."""

import logging
import secrets
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, UserConfig
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedbn_flower.clients.modules.surroundings import usual_surroundings
from fedbn_flower.strategies import PhaseReport, RuleState
from fedbn_flower.strategies.partial_sums import takes_sums

from ..config.registry import STRATEGY
from ..config.run_config import RunConfig
from ..config.unused_keys import SIMULATION, Caller
from ..core.errors import not_allowed
from ..core.ground.wire import (
    CHECKPOINT_ROUND,
    CLASSES,
    CLIENT_LR,
    DIGEST_OF_START,
    DP_NOISE,
    EVAL_SPLITS,
    FINE_TUNE,
    RUN,
)
from ..data.notes import Note
from ..privacy.example_privacy import ExamplePrivacy
from ..privacy.run_privacy import charged
from ..records.checkpoint import Checkpoint
from ..records.events import Observer, RoundResult, RunInfo
from ..records.metrics import medians, pooled_metrics, round_means, spread
from ..records.run_totals import RunTotals
from .checks.model_fit import check_fit, decides
from .checks.nodes import check_nodes
from .checks.notices import notices
from .checks.privacy_fit import privacy_of
from .checks.site_sizes import sites_sizes
from .checks.site_statistics import sites_scale
from .checks.unused_keys import unused_keys, unused_line
from .divergence import Divergence
from .evaluation import GlobalEvaluation, evaluate_new
from .exchange import Exchange, model_to_send, next_model
from .extensions import extensions_of
from .inputs import inputs_of
from .learnt import what_is_learnt
from .participation.asynchronous import Training
from .participation.makers import buffers_of, clock_of, goes_by_partition, participation
from .refusals import ONE_LINE_ERRORS, Refusals, one_line_ends_the_run
from .site_memories import SiteMemories
from .strategy import errors_of_custom_rules, make_strategy, prepare_round, step_more
from .tasks import client_settings
from .totals import add_round, end_on_clock, last_sure_checkpoint

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
        When the data cannot be read or do not fit the configuration; when the rule or client cannot be used.
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
        """Whether anything of the model travels."""
        without_model = STRATEGY.find(config.strategy).goes_without_model or config.reference == "alone"
        if not (self.shares or without_model):
            fedproto = ", or strategy and objective 'fedproto' with it" if config.client == "alone" else ""
            raise not_allowed("client", config.client, f"another one{fedproto}: no entry is left to share")
        if config.may_end_early and not (config.clients_evaluate or self.inputs.server_evaluates):
            key, value, allowed = (
                ("patience", config.patience, "0") if config.patience else ("stop-at-target", True, "false")
            )
            raise not_allowed(key, value, f"{allowed} with fraction-evaluate 0: nothing is evaluated")
        self.decide_by = decides(self.inputs)
        """Whose metric decides, of `records.deciding.DECIDING`."""
        self.strategy = make_strategy(self.inputs)
        self.clock = clock_of(self.inputs)
        self.strategy.node_participation = replace(participation(config), clock=self.clock)
        self.strategy.node_directory.needed_by = goes_by_partition(config)
        self.buffers = buffers_of(self.inputs, self.clock)
        self.run_name = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}"
        """The run's name for clients; a run that starts later has a greater name."""
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
        )
        self.extensions = extensions_of(config, self.info)
        self.memories = SiteMemories(self.strategy.node_directory)
        self.last_round = 0
        """The last round that is done."""

    @cached_property
    def learnt(self) -> tuple[Note, ...]:
        """What the run learns, from what, and from whom."""
        return what_is_learnt(self.inputs)

    @cached_property
    def warnings(self) -> list[str]:
        """What is no mistake but hardly meant."""
        found = [*notices(self.inputs), *(self.privacy.notices() if self.privacy else ()), self.unused_line]
        return [line for line in found if line]

    @property
    def unused(self) -> list[str]:
        """The keys that are given, and that nothing reads."""
        return list(unused_keys(inputs_of(self.config), self.caller))

    @property
    def unused_line(self) -> str:
        """What tells of these keys; empty if there are none."""
        return unused_line(inputs_of(self.config), self.caller)

    @one_line_ends_the_run()
    def ask_sizes(self, grid: Grid) -> None:
        """Ask sites with data of their own how many examples they have, where privacy is accounted by these.

        Raises
        ------
        UserError, RunFailed
            As `run`; when a site does not answer.
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
            When the federation has more nodes than ``num-clients``.
        RunFailed
            When no round had enough usable answers, all of a phase were refused for one reason, too few
            nodes were there in time, every site lost its memory of a resumed run, or the model diverged.
        """
        config, strategy = self.config, self.strategy
        check_nodes(strategy, grid, config.num_clients, 0 if self.clock else config.concurrency)
        for warning in self.warnings:
            LOGGER.warning("%s", warning)
        if (weights := self.inputs.initial().weights) and weights.complete:
            LOGGER.info("%s", weights)
        arrays, first_round = ArrayRecord(), 1
        if checkpoint:
            arrays = checkpoint.arrays
            first_round = checkpoint.server_round + 1
            strategy.rule_state = RuleState(checkpoint.updates, dict(checkpoint.rule), dict(checkpoint.draws))
            self.run_name = checkpoint.run
            account = checkpoint.counters.get("account", {})
            self.totals = RunTotals.of(account)
            self.extensions.restore(checkpoint.counters.get("extensions", {}), account)
            memories = checkpoint.counters.get("memories", {})
            self.memories = SiteMemories(strategy.node_directory, resumes=True, **memories)
            if self.buffers:
                self.buffers.versions = dict(checkpoint.versions)
        self.totals.normalization = self.totals.normalization or sites_scale(self.inputs, strategy, grid)
        updates, sampled, trained = strategy.rule_state.updates, False, False
        divergence, refusals = Divergence(), Refusals()
        settings = client_settings(config)
        for server_round in range(first_round, config.rounds + 1):
            arrays = self._shared_in(server_round, arrays)
            result = self._decided(self._round(server_round, arrays, settings, grid, observers))
            self.memories.check()
            arrays = result.arrays
            sampled |= bool(result.train.metrics or result.train.failures)
            trained |= bool(result.train.metrics)
            for observer in observers:
                observer.on_round(result)
            self.last_round = server_round
            refusals.note(result)
            divergence.note(result)
            if result.last:
                break
        if (self.privacy and sampled and not trained) or (
            strategy.rule_state.updates == updates and (sampled or not updates)
        ):
            raise refusals.never_updated(config, sampled)
        for line in refusals.lines():
            LOGGER.warning("%s", line)
        divergence.check_end(config.client_lr)
        if sampled and config.share_evaluating and not (result.evaluate.metrics or result.global_metrics):
            LOGGER.warning(
                "round %d, the last: nobody was evaluated, so the summary has no metrics", server_round
            )
        return arrays

    def _decided(self, result: RoundResult) -> RoundResult:
        """Return a round with what the extensions make of it."""
        result, reason = self.extensions.after_round(result)
        if reason and result.server_round < self.config.rounds:
            self.totals.stopped = self.totals.stopped or reason
        return result

    def _shared_in(self, server_round: int, arrays: ArrayRecord) -> ArrayRecord:
        """Return what travels in a round, from the last one's; use the inputs of the round from now on.

        What has not travelled before has its initial values.
        """
        before, self.inputs = self.inputs, inputs_of(self.config.at_round(server_round))
        if self.inputs is not before:
            model, _ = self.inputs.model()
            self.evaluation = GlobalEvaluation(self.inputs, model)
            step_more(self.strategy, self.inputs, before)
        return ArrayRecord(
            {n: arrays[n] if n in arrays else Array(self.initial[n]) for n in self.inputs.split.shared}
        )

    def known_of_model(self, server_round: int, arrays: ArrayRecord) -> dict[str, NDArray]:
        """Return the model after a round without what stays at home: what travelled, and what is frozen."""
        return inputs_of(self.config.at_round(server_round)).completed(arrays)

    def _answers(self, training: Training) -> Iterable[Message]:
        """Return the answers to a round's train messages."""
        replies = self.buffers.answers(training) if self.buffers else self._replies(training)
        return self.memories.noted(training.exchange.grid, training.server_round, MessageType.TRAIN, replies)

    def _replies(self, training: Training) -> Iterable[Message]:
        made, privacy = list(training.configure()), self.privacy
        asked = (training.rule.node_directory.partition(message.metadata.dst_node_id) for message in made)
        if isinstance(privacy, ExamplePrivacy) and privacy.lacks(asked):  # a site that joined late
            privacy.learn(sites_sizes(self.inputs, training.rule, training.exchange.grid))
        messages = charged(self.privacy, training.server_round, made, training.rule)
        return training.exchange.answers(MessageType.TRAIN, messages, training.on_answer)

    def tell_complete(self, grid: Grid) -> None:
        """Tell sites that the run is complete, once its folder is."""
        self.memories.tell_complete(grid, self.run_name, self.last_round, self.config.round_timeout)

    def _medians(self, report: PhaseReport) -> dict[str, float]:
        """Return the medians over clients, if they decide."""
        return medians(report.metrics.values(), self.problem) if self.decide_by == "median" else {}

    def _round(
        self,
        server_round: int,
        arrays: ArrayRecord,
        settings: UserConfig,
        grid: Grid,
        observers: Iterable[Observer],
    ) -> RoundResult:
        """Train, evaluate if it is due, and count both."""
        config, strategy = self.config, self.strategy
        started = time.monotonic()
        exchange = Exchange(grid, config.round_timeout, takes_sums(strategy), config.codec)
        spent = bool(self.privacy and self.privacy.begin_round(server_round))
        planned_last = spent or server_round == config.rounds
        due = planned_last or server_round % config.evaluate_every == 0
        tests = due and (planned_last or config.may_end_early)
        splits = config.held_out_splits(final=tests) if due else ""
        classes = self.dataset.spec.outputs if tests and self.dataset.has_classes else 0
        by_class: dict[str, str | int] = {CLASSES: classes} if classes else {}
        after_training = splits if config.eval_model == "local" else ""
        moment: dict[str, Any] = {
            RUN: self.run_name,
            **self.totals.normalization,
            **({DP_NOISE: self.privacy.noise} if isinstance(self.privacy, ExamplePrivacy) else {}),
            CHECKPOINT_ROUND: last_sure_checkpoint(config, server_round),
            **({DIGEST_OF_START: digest} if (digest := self.inputs.digest_of_start) else {}),
        }
        rates = config.scheduled_rates(server_round)
        client_rate = {CLIENT_LR: rates.get(CLIENT_LR, config.client_lr)}
        sent = prepare_round(strategy, self.inputs, server_round, exchange, arrays)
        fine_tuning = {FINE_TUNE: config.fine_tune, **client_rate} if config.fine_tune else {}
        train_config = ConfigRecord(
            {
                **settings,
                **moment,
                **client_rate,
                **fine_tuning,
                EVAL_SPLITS: after_training,
                **(by_class if after_training else {}),
            }
        )
        evaluation: dict[str, Any] = {EVAL_SPLITS: splits, **moment, **fine_tuning}

        def on_answer(phase: str, done: int, total: int) -> None:
            for observer in observers:
                observer.on_answer(server_round, phase, done, total)

        def configure() -> Iterable[Message]:
            with errors_of_custom_rules(config, ONE_LINE_ERRORS):
                return strategy.configure_train(server_round, sent, train_config, grid)

        replies = self._answers(Training(strategy, server_round, arrays, exchange, configure, on_answer))
        with errors_of_custom_rules(config, ONE_LINE_ERRORS):
            updated, train_metrics = strategy.aggregate_train(server_round, replies)
        train_report = evaluate_report = strategy.phase_report
        evaluate_metrics: MetricRecord | None = None
        before, arrays = arrays, next_model(self.inputs, updated, arrays, sent)

        if splits and not after_training:
            evaluate_config = ConfigRecord({**evaluation, **by_class})
            with errors_of_custom_rules(config, ONE_LINE_ERRORS):
                messages = strategy.configure_evaluate(
                    server_round, model_to_send(arrays, self.inputs.rounded_names), evaluate_config, grid
                )
            replies = exchange.answers(MessageType.EVALUATE, messages, on_answer)
            replies = self.memories.noted(grid, server_round, MessageType.EVALUATE, replies)
            with errors_of_custom_rules(config, ONE_LINE_ERRORS):
                evaluate_metrics = strategy.aggregate_evaluate(server_round, replies)
            evaluate_report = strategy.phase_report
        elif not splits:
            evaluate_report = PhaseReport()
        new = new_as_received = None
        if tests and config.holdout_clients and self.shares:
            asked = self.inputs, strategy, exchange, server_round, arrays, ConfigRecord(evaluation)
            new, new_as_received = evaluate_new(*asked)

        means = self._medians(evaluate_report) | round_means(
            train_metrics, evaluate_metrics, evaluate_report, bool(after_training), self.problem
        )
        of_global, diverged = self.evaluation.evaluate(arrays, splits, classes, evaluate_report, grid)
        pooled = pooled_metrics(evaluate_report, means, self.problem)
        seconds = time.monotonic() - started
        add_round(self.totals, server_round, seconds, exchange, len(train_report.metrics))
        clock = end_on_clock(self.totals, server_round, self.clock, self.buffers)
        return RoundResult(
            server_round,
            seconds,
            arrays,
            train_report,
            evaluate_report,
            means,
            of_global,
            self.problem.metrics_of_all_classes,
            before=before,
            splits=splits,
            spread=spread(evaluate_report.metrics.values(), self.problem),
            pooled=pooled,
            seconds_waited=exchange.seconds,
            bytes_sent=exchange.bytes_sent,
            bytes_received=exchange.bytes_received,
            new=new,
            new_as_received=new_as_received,
            rates=rates,
            privacy=self.privacy.columns(server_round) if self.privacy else {},
            decide_by=self.decide_by,
            costs=self.totals.costs(),
            spent=spent,
            diverged=diverged,
            last=planned_last or bool(diverged),
            clock=clock,
            staleness=strategy._buffer_.staleness if strategy._buffer_ else {},
        )
