"""`SecAgg`: the server learns the sum of the clients' answers, and nothing else of anybody."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord
from numpy.typing import NDArray

from fedbn_flower.clients import Update
from fedbn_flower.strategies import ExpectedMetrics, ReplyRefused
from fedbn_flower.strategies.aggregation.vectors import Layout
from fedbn_flower.strategies.messages.gate import content_of, printable, record_of, refusing
from fedbn_flower.strategies.messages.nodes import KnowsPartitions
from fedbn_flower.strategies.messages.npy import encoded
from fedbn_flower.strategies.messages.validation import Range
from fedbn_flower.strategies.partial_sums import take_sums

from ..core.errors import Conflict
from ..core.ground.columns import CLIENT_MEAN, CLIENT_MEDIAN
from ..core.ground.wire import COMPRESSED, CONFIG, EVALUATED, EVALUATION, METRICS, NUM_EXAMPLES, STATES
from ..extensions.at_site import AtClient, Outgoing, Record
from ..extensions.base import Extension, Moment
from ..extensions.declared import About
from ..privacy.floors import Refused
from ..privacy.run_privacy import RunPrivacy
from ..records.events import RoundResult, RunInfo
from . import words
from .answers import (
    Gathered,
    Part,
    beside,
    check_trained,
    config_bytes,
    contents_of,
    followed,
    nodes_of,
    say_both,
    states_of,
    sums_of,
    vector_in,
    waits,
    without_metrics,
    written,
)
from .conflicts import ON, conflicts
from .cryptography import LENGTH
from .in_words import LIBRARIES, seen
from .integers import Grid
from .plan import Found, Plan, most_examples
from .private import SummedPrivacy, check_noise, noise_in, share_of
from .session import NoSum, Session
from .signatures import Card, names
from .site import IntegerSum, answer_step, leaving

if TYPE_CHECKING:
    from ..server.federation import Federation

LOGGER = logging.getLogger("flwr.fedbn")

PAPERS = ("bonawitz2017secagg", "bell2020secagg", "kairouz2021ddgauss")
"""Masks, neighbours, and the rounding at random."""
ROUNDED = 37
"""The purpose of the random numbers that round, after seed, partition and round."""
NEARLY = 1e-5
"""How far a mean may be outside of its range because numbers are rounded, relatively to 1."""
DROWNED = 2
"""Of how many lengths that rounding moves it by a mean update is at least, or somebody is told."""
NOT_HELD_OUT = ("train-", "local-")
NOT_ASKED = "secagg: it evaluates when it trains, and was not asked to train"
ALONE = 1
"""The number of examples in an answer, where its own does not travel."""


class SecAgg(Extension):
    """Has clients send integers that add, masked with ``on``, and gives the rule their sum alone.

    Parameters
    ----------
    run : RunInfo
        The run.
    most_examples : callable
        Returns the largest number of training examples of a client; 0 where only sites know.
    privacy : RunPrivacy, optional
        With ``dp``; a `SummedPrivacy` is one whose noise clients add.
    """

    place = 0  # nearest to the wire: all other extensions see the decoded sum
    in_workers = True

    def __init__(
        self, run: RunInfo, most_examples: Callable[[], int], privacy: RunPrivacy | None = None
    ) -> None:
        super().__init__(run)
        self.mode = str(run.config["secagg"])
        self.most_examples = most_examples
        self.privacy = privacy if isinstance(privacy, SummedPrivacy) else None
        self.expected = ExpectedMetrics()
        """What clients find, which the server sees only sums of."""
        self.client_means: dict[str, float] = {}
        """The means over clients of the last evaluation, each client with equal weight."""
        self.grid: Grid | None = None
        """Of the last round's updates."""
        self.sums: list[int] = []
        """Of how many clients the fewest and the most of a round's sum were."""
        self.signed = 0
        """By how many sites each sum is signed at least."""
        self.error = 0.0
        """How far rounding has moved the mean of a round's updates at most, over the clip."""
        self.drowned = False
        """Whether an update has drowned in rounding, and somebody was told."""
        self.prepared: Session | None = None
        """The next session, if it was begun with the last one."""
        self.known: dict[int, Card] = {}
        """What clients have advertised for the next session, by node."""
        self.barred: dict[int, str] = {}
        """Who has no part in any more sums, and why, by node."""

    @classmethod
    def made_of(cls, federation: Federation) -> Mapping[str, Any]:
        return {"most_examples": partial(most_examples, federation.inputs), "privacy": federation.privacy}

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        yield from conflicts(config)

    @classmethod
    def about(cls, config: Mapping[str, Any]) -> About:
        mode = config["secagg"]
        all_do_both = config["fraction-train"] == config["fraction-evaluate"] == 1 and not config["dropout"]
        same = all_do_both and config["availability"] == "always"
        apart = "" if same else f"with secagg {mode!r} training and evaluation are sums of different clients"
        return About(PAPERS, apart, keeps_state=mode == ON)

    @classmethod
    def seen(cls, found: Mapping[str, Any]) -> Iterator[str]:
        yield from seen(found)

    # ---- the server's side ---------------------------------------------------------------------------

    def prepare(self, moment: Moment) -> None:
        rule = moment.rule
        if not self.expected.ranges:
            self.expected = rule.expected_metrics
            anything = dict.fromkeys(self.expected.ranges, Range(-np.inf, np.inf))
            rule.expected_metrics = replace(self.expected, ranges=anything, disagreement=lambda *_: "")
        self.client_means = {}
        take_sums(rule)
        moment.exchange.summed = True
        moment.exchange.carry = partial(self._carried, moment)

    def settings(self, phase: str, moment: Moment) -> Mapping[str, Any]:
        return self._plan(moment).told()

    def _plan(self, moment: Moment) -> Plan:
        config, rule = self.run.config, moment.rule
        by_size = rule.weighted_by_key is not None
        further: dict[str, Any] = {**Plan.metrics_of(self.expected)}
        further |= noise_in(self.privacy.config) if self.privacy else {}
        return Plan(
            clip=self.privacy.clip if self.privacy else float(rule._clip_update_norm_),
            clients=int(config["num-clients"]),
            bits=int(config["secagg-bits"]),
            cap=int(rule._max_weight_ or self.most_examples()) if by_size else 0,
            alike=rule.weighs_alike,
            **further,
        )

    def _carried(self, moment: Moment, phase: str, messages: list[Message]) -> Iterator[Message]:
        """Return answers to a phase's messages that have nothing but their sum: the first bears it."""
        if not messages:
            return iter(())
        rule, plan = moment.rule, self._plan(moment)
        asked = [message for message in messages if message.metadata.message_type == phase]
        both = any(EVALUATION in message.content for message in asked)
        layout = None
        if phase == MessageType.TRAIN:
            layout = rule.new_round(moment.number, rule._train_phase_).layout
            self.grid = plan.grid_of(layout)
        size, nodes = plan.size(layout), nodes_of(messages)
        gathered = Gathered(np.zeros(size + both * plan.size(None), plan.dtype(layout)))
        gathered.failures |= dict.fromkeys(set(nodes).difference(nodes_of(asked)), NOT_ASKED)
        parts: dict[str, Part] = {}
        try:
            total = self._summed(moment, phase, asked, gathered, both)
            count = len(gathered.answered)
            found = plan.read(total[:size], count, layout)
            part = self._part(moment, found, layout)
            if layout:
                self._look_at(plan, found, total[:size], count, layout)
                if self.privacy:
                    self.privacy.adapt(found.within)
            parts[""] = part
            self.sums = [min([count, *self.sums]), max([count, *self.sums])]
        except NoSum as why:
            apart = names([n for n in nodes if n in gathered.apart], rule.node_directory.name)
            reason = f"secagg: there is no sum: {why}" + (f"; told something else: {apart}" if apart else "")
            LOGGER.warning("round %d, %s: %s", moment.number, phase, reason)
            gathered.ends(reason, nodes)
        if both and gathered.answered:
            parts[EVALUATED] = self._evaluated(moment, plan.read(total[size:], len(gathered.answered), None))
        return written(messages, gathered, parts, f"{words.SECAGG}-{moment.number}-{phase}")

    def _look_at(
        self, plan: Plan, found: Found, total: NDArray[np.unsignedinteger], count: int, layout: Layout
    ) -> None:
        """Refuse a sum of updates that cannot be; note how far rounding has moved the mean.

        Raises
        ------
        NoSum
            When it cannot be.
        """
        if not plan.is_possible(found, total, count, layout):
            raise NoSum(f"it is more than {count} clients can have sent within their bounds: one has not")
        error = plan.grid_of(layout).error_of(count, found.weight)
        length, moved = float(np.linalg.norm(found.update)) / found.weight, error * plan.clip
        if not (plan.noise or self.drowned) and length < DROWNED * moved:
            self.drowned = True
            LOGGER.warning(
                "secagg: rounding moves the mean update by %.2g, and it is %.2g long: a clip-update-norm, "
                "now %g, near the lengths of clients' updates helps%s",
                moved, length, plan.clip,
                f", and as max-num-examples, now {plan.cap}, what the largest client has" if plan.cap else "",
            )  # fmt: skip
        self.error = max(error, self.error)

    def _summed(
        self,
        moment: Moment,
        phase: str,
        messages: list[Message],
        gathered: Gathered,
        both: bool,
    ) -> NDArray[np.unsignedinteger]:
        """Return the sum of the clients' integers; with ``both`` of what they evaluate and train.

        Raises
        ------
        NoSum
            When there is none.
        """
        least, number = int(self.run.config["secagg-min"]), moment.number
        least_is = f"secagg-min is {least}"
        if self.privacy:
            least = self.privacy.shares.survivors
            least_is = f"the noise is that of {least}"
        configs = [record_of(content, CONFIG, ConfigRecord) for content in contents_of(messages)]
        if both:
            say_both(messages, number)
        nodes, run = nodes_of(messages), messages[0].metadata.run_id
        new_session = partial(self._new_session, moment, run, least, least_is)
        session, upcoming = self._prepared_for(nodes) or new_session(), None
        if self.mode != ON:
            self._gather(moment, messages, gathered)
            session.check(len(gathered.answered))
            return gathered.total
        session.server_round, session.send = number, partial(self._sent, moment)
        invitations: Mapping[int, Mapping[str, object]] = {}
        try:
            if not session.members:
                session.open(nodes, self._taken(nodes))
            for config in configs:
                config.update({words.TAG: session.tag, words.PRESENT: session.present})
            numbers = session.nodes
            self._gather(moment, [m for m in messages if m.metadata.dst_node_id in numbers], gathered)
            answered = [node for node in nodes if node in gathered.answered]
            if self._goes_on(moment, phase) and all(node in self.known for node in answered):
                upcoming = new_session()
                with suppress(NoSum):
                    invitations = upcoming.invited(self._taken(answered))
            survivors = [numbers[node] for node in answered]
            total = session.close(gathered.total, survivors, gathered.heard, upcoming, invitations)
            self.signed = min(session.signatures, self.signed) if self.sums else session.signatures
            return total
        finally:
            self.prepared = upcoming
            gathered.failures = {**session.failures, **gathered.failures}
            for node in gathered.answered.keys() & gathered.failures.keys():
                why, name = gathered.failures.pop(node), session.name(node)
                LOGGER.warning("round %d, %s: %s has answered, but: %s", number, phase, name, why)

    def _new_session(self, moment: Moment, run: int, least: int, least_is: str) -> Session:
        shares, name = int(self.run.config["secagg-threshold"]), moment.rule.node_directory.name
        session = Session(secrets.token_hex(16), least, shares, least_is, name, self.barred)
        session.run, session.server_round = run, moment.number
        return session

    def _prepared_for(self, nodes: list[int]) -> Session | None:
        """Return the session that was begun with the last one, if it is of these nodes."""
        session, self.prepared = self.prepared, None
        if session is None or session.nodes.keys() != set(nodes) or session.nodes.keys() & self.barred.keys():
            return None
        session.failures.clear()
        return session

    def _taken(self, nodes: list[int]) -> dict[int, Card]:
        """Return what these nodes have advertised, which is for one session."""
        return {node: self.known.pop(node) for node in nodes if node in self.known}

    def _goes_on(self, moment: Moment, phase: str) -> bool:
        """Return whether the same clients have another sum, as far as that is known."""
        config = self.run.config
        all_of_them = config["fraction-train"] == 1 and config["fraction-evaluate"] in (0, 1)
        over = moment.last and (phase == MessageType.EVALUATE or not moment.splits)
        return all_of_them and not over

    def _sent(self, moment: Moment, messages: Iterable[Message]) -> Iterable[Message]:
        """Send a step's messages; count their bytes."""
        exchange, sent = moment.exchange, list(messages)
        exchange.bytes_sent += sum(config_bytes(message) for message in sent)
        for reply in exchange.grid.send_and_receive(sent, timeout=exchange.timeout):
            exchange.bytes_received += config_bytes(reply)
            yield reply

    def _gather(self, moment: Moment, messages: list[Message], gathered: Gathered) -> None:
        """Add the vectors of the answers as they come."""
        exchange = moment.exchange
        simulated = isinstance(exchange.grid, KnowsPartitions)
        waiting: dict[str, Message] = {}
        for reply in exchange.grid.send_and_receive(messages, timeout=exchange.timeout):
            waiting = waiting or {message.metadata.message_id: message for message in messages}
            asked = waiting.pop(reply.metadata.reply_to_message_id, None)
            node = asked.metadata.dst_node_id if asked else 0
            if not asked or node in gathered.answered or node in gathered.failures:
                continue
            try:
                with refusing():
                    content = content_of(reply)
                    check_trained(content)
                    vector = vector_in(content, gathered.total, simulated)
            except ReplyRefused as refusal:
                gathered.failures[node] = printable(str(refusal))
                continue
            told = self._take_keys(node, content.get(words.SECAGG))
            gathered.add(node, beside(content, EVALUATION in asked.content), vector, told)
        gathered.settle()

    def _take_keys(self, node: int, record: object) -> bytes:
        """Take the keys of a client's next session; return the digest of what it was told."""
        if not isinstance(record, ArrayRecord):
            return b""
        try:
            with refusing():
                said = {name: array.numpy().tobytes() for name, array in record.items()}
                self.known[node] = Card.of(said)
                return said.get(words.HEARD, b"")[:LENGTH]
        except ReplyRefused:
            self.known.pop(node, None)
            return b""

    def _part(self, moment: Moment, found: Found, layout: Layout | None) -> Part:
        """Return what a sum says of a training, or without a layout of an evaluation.

        Raises
        ------
        NoSum
            When nobody has any example.
        """
        if not found.weight > 0:
            raise NoSum("no client has any example")
        sums = sums_of(moment, found, layout) if layout else {}
        return Part(found, {**states_of(self.expected.states, found), **sums}, self._means(found))

    def _evaluated(self, moment: Moment, found: Found) -> Part:
        """Return what a sum says of the evaluation of the round before, which the training went with."""
        try:
            return self._part(moment, found, None)
        except NoSum as why:
            number, phase = moment.number - 1, MessageType.EVALUATE
            LOGGER.warning("round %d, %s: secagg: there is no sum: %s", number, phase, why)
            return Part(None, why=f"secagg: there is no sum: {why}")

    def _means(self, found: Found) -> dict[str, float]:
        """Return the metrics of all clients together that are in their ranges: a client may send anything."""
        known, means = self.expected.ranges, {}
        for name, value in found.means.items():
            low, high = known[name].low, known[name].high
            if low - NEARLY <= value <= high + NEARLY:
                means[name] = min(max(value, low), high)
        held_out = (n for n in found.client_means if n in means and not n.startswith(NOT_HELD_OUT))
        self.client_means |= {f"{CLIENT_MEAN}{n}": found.client_means[n] for n in held_out}
        return {**means, **found.counts}

    def after_round(self, result: RoundResult) -> RoundResult:
        """Return a round as it is known of all clients together."""
        train = without_metrics(result.train)
        of_one = tuple(
            f"{prefix}{name}" for prefix in (CLIENT_MEAN, CLIENT_MEDIAN) for name in self.expected.ranges
        )
        means = {name: value for name, value in result.means.items() if name not in of_one}
        client_means, self.client_means = self.client_means, {}
        return replace(
            result,
            train=train,
            evaluate=train if result.evaluate is result.train else without_metrics(result.evaluate),
            means={**means, **client_means},
            spread={},
            only_sums=True,
        )

    def summary(self) -> Mapping[str, Any]:
        """Return what a privacy officer reads of it: of how many clients sums are, and who made the masks."""
        grid = {"bits": self.grid.bits, "error": self.error} if self.grid else {}
        made_by = {name: version(name) for name in LIBRARIES} if self.mode == ON else {}
        least = int(self.run.config["secagg-min"])
        signed = {"signed": self.signed} if self.signed else {}
        found = {"mode": self.mode, "least": least, "sums-of": self.sums, **signed, **grid, **made_by}
        return found

    def state(self) -> Mapping[str, Any]:
        signed = {"signed": self.signed} if self.signed else {}
        clip = {"clip": self.privacy.clip} if self.privacy and self.privacy.adaptive else {}
        return {"sums": self.sums, "error": self.error, **signed, **clip} if self.sums else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.sums, self.signed = list(state.get("sums", [])), int(state.get("signed", 0))
        self.error = float(state.get("error", 0.0))
        if self.privacy and "clip" in state:
            self.privacy.clip = float(state["clip"])

    # ---- the client's side ---------------------------------------------------------------------------

    @classmethod
    def trained(cls, outgoing: Outgoing, at: AtClient) -> Outgoing:
        """Return a client's integers in the place of what it trained and found."""
        plan, client, update = Plan.heard(at.asked), at.client, outgoing.update
        received = at.views().by_name()
        stepped = {alias for name in client.trained_names for alias in client.aliases.get(name, (name,))}
        tied = [names for names in client.aliases.values() if len(names) > 1]
        if at.config.against_server:
            check_noise(at.config, plan, update)
        elif plan.count_noise:
            raise Refused("secagg: the server asks for a count of updates, and the run has none")
        vector = plan.trained(
            Layout(received, stepped & received.keys(), tied),
            outgoing.model(client.shared_names),
            received,
            update.num_examples,
            update.metrics,
            update.metrics.get(STATES) or {},  # type: ignore[arg-type]
            np.random.default_rng([*client.task.seed, at.number, ROUNDED]),
        )
        if at.config.against_server:
            entries = sum(received[name].size for name in received.keys() & stepped)
            share = share_of(at.config, entries, client.task.seed[-1], at.number)
            vector[: share.size] += share
        codes, keys = leaving(at, followed(vector, at.context.state, at.asked, plan))
        blank = Update(update.arrays, ALONE, {}, {**update.records, **keys})
        return Outgoing(blank, {}, codes)

    @classmethod
    def evaluated(cls, num_examples: int, metrics: Mapping[str, Any], at: AtClient) -> Mapping[str, Record]:
        """Return a client's integers in the place of what it has found of a model."""
        vector = Plan.heard(at.asked).evaluated(num_examples, metrics, metrics.get(STATES) or {})
        found: dict[str, Record] = {METRICS: MetricRecord({NUM_EXAMPLES: ALONE})}
        if waits(at.context.state, vector, at.asked):
            return found
        codes, keys = leaving(at, vector)
        further = {name: {n: encoded(a) for n, a in arrays.items()} for name, arrays in keys.items()}
        return {**found, COMPRESSED: codes, **{name: ArrayRecord(one) for name, one in further.items()}}

    @classmethod
    def group_sum(cls, config: Any) -> IntegerSum:
        return IntegerSum()

    @classmethod
    def answer(cls, message: Message, context: Context, config: Any) -> Message | None:
        """Return the answer to a step of the exchange."""
        return answer_step(message, context, config) if words.SECAGG in message.content else None
