"""``attack``: some clients lie, so that what helps against them can be measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, Message, MessageType
from numpy.typing import NDArray

from fedbn_flower.clients import NamedArrays, Update
from fedbn_flower.strategies import PhaseReport
from fedbn_flower.strategies.aggregation.vectors import all_finite
from fedbn_flower.strategies.messages.npy import encoded, viewed

from ..core.errors import Conflict, Unused
from ..core.ground.columns import ATTACK_SUCCESS, ATTACKER, ATTACKERS, HONEST, PATCHED
from ..core.ground.wire import ARRAYS, EVAL_SPLITS
from ..core.ground.wire import ATTACKERS as WHO
from ..extensions.annex_keys import OMNISCIENT, SHARE
from ..extensions.at_site import AtClient, Outgoing
from ..extensions.base import Configure, Extension, Moment
from ..extensions.declared import About
from ..extensions.holdout import evaluated_by
from ..records.events import RoundResult, RunInfo
from .attackers import attack_of
from .named import ON_UPDATES, NamedAttack, attacks_named, papers_of
from .updates import FROM_THE_OTHERS, alie_z, noise, scaled

if TYPE_CHECKING:
    from ..server.federation import Federation

NOISE = 32
"""The purpose of an attacker's random numbers, after seed, partition and round."""


class Attack(Extension):
    """Has some clients lie: in their examples, their updates, or by what the others answered.

    Attackers train like the others, and what they report and evaluate is true. A model attack changes the
    stepped entries of what they send; statistics stay as trained. Omniscient attackers all send the same,
    after the others of their round. With a backdoor, honest clients evaluate the model on patched examples.

    Parameters
    ----------
    run : RunInfo
        The run.
    attacks : Sequence[NamedAttack]
        What attackers do.
    attackers : frozenset[int]
        Their partitions.
    patched : Sequence[int]
        The honest clients that have patched test examples, by partition.
    """

    place = 30  # inside compression: false updates are coded and decoded like any other
    reserves = (ATTACKERS, ATTACK_SUCCESS)
    beside = True
    in_workers = True

    def __init__(
        self,
        run: RunInfo,
        attacks: Sequence[NamedAttack],
        attackers: frozenset[int],
        patched: Sequence[int],
    ) -> None:
        super().__init__(run)
        self.attacks = attacks
        self.attackers = attackers
        self.patched = frozenset(patched)
        self.backdoor = any(one.name == "backdoor" for one in attacks)
        self.answered: list[int] = []
        self.success: float | None = None
        """Of the last model that was tested."""
        self.tried = 0
        """The round whose model was tested last."""
        self.now: dict[str, float] = {}
        self.all_told = 0
        of_backdoor = [ATTACK_SUCCESS] if self.backdoor else []
        self.header = (ATTACKERS, f"{HONEST}{run.compared_by}", *of_backdoor)
        self.notices = tuple(self._notices())

    # ---- before the run ------------------------------------------------------------------------------

    @classmethod
    def made_of(cls, federation: Federation) -> Mapping[str, Any]:
        return attack_of(federation)

    @classmethod
    def about(cls, config: Mapping[str, Any]) -> About:
        return About(papers_of(config["attack"]))

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        attacks, text = attacks_named(config["attack"]), config["attack"]
        if not attacks:
            if config["attackers"] != SHARE:
                yield Unused("attackers", config["attackers"], "without attack")
            return
        names = {one.name for one in attacks}
        with_it = f"with attack {text!r}"
        if config["reference"] != "none":
            yield Conflict("reference", config["reference"], f"'none' {with_it}")
        if config["dp"] not in ("none", "client"):
            why = (
                f"'none' or 'client' {with_it}: clients that are not trusted add noise, and send no metrics,"
            )
            yield Conflict("dp", config["dp"], why)
        if names.intersection(OMNISCIENT) and config["protocol"] != "sync":
            why = "since attackers wait for all answers of a round,"
            yield Conflict("protocol", config["protocol"], f"'sync', {why} {with_it}")
        if names.intersection((*OMNISCIENT, *ON_UPDATES)) and "alone" in config["client"].split("+"):
            yield Conflict("client", config["client"], f"another one {with_it}: no model travels")

    def _notices(self) -> Iterator[str]:
        number, text = int(self.run.config["num-clients"]), self.run.config["attack"]
        who = ", ".join(map(str, sorted(self.attackers)))
        yield (
            f"attack {text!r} by {len(self.attackers)} of {number} clients ({who}); they evaluate as the "
            "others do, and count in the means over clients"
        )
        z_of_round = any(one == NamedAttack("alie") for one in self.attacks)
        if z_of_round and not alie_z(number, few := len(self.attackers)):
            why = f"its z is 0 with {few} attackers of {number}"
            yield f"attack 'alie': {why}, who send the mean; give alie:Z"

    # ---- a round -------------------------------------------------------------------------------------

    def settings(self, phase: str, moment: Moment) -> Mapping[str, Any]:
        if phase != MessageType.TRAIN or not any(one.name in ON_UPDATES for one in self.attacks):
            return {}
        return {WHO: sorted(self.attackers)}

    @classmethod
    def trained(cls, outgoing: Outgoing, at: AtClient) -> Outgoing:
        """Return what an attacker sends whose attack needs its own update alone."""
        client, who = at.client, at.asked.get(WHO, ())
        if not (isinstance(who, list) and client.task.seed[-1] in who):
            return outgoing
        x, model = at.received().by_name(), outgoing.model(client.shared_names)
        trained = {name: model[name] for name in client.trained_names if name in model}
        rng = np.random.default_rng([*client.task.seed, at.number, NOISE])
        for attack in attacks_named(at.config.attack):
            if attack.name in ON_UPDATES:
                trained = _alone(attack, x, trained, rng)
        tied = {alias: trained[name] for name in trained for alias in client.aliases.get(name, ())}
        update = outgoing.update
        sent = NamedArrays({**model, **{n: a for n, a in tied.items() if n in model}, **trained})
        return outgoing.with_update(Update(sent, update.num_examples, update.metrics, update.records))

    def prepare(self, moment: Moment) -> None:
        if attack := next((one for one in self.attacks if one.name in OMNISCIENT), None):
            moment.exchange.train = partial(self._train, attack, moment)

    def _train(
        self, attack: NamedAttack, moment: Moment, model: ArrayRecord, configure: Configure
    ) -> Iterable[Message]:
        """Return the answers of the honest as they come, then those of omniscient attackers."""
        messages = list(configure())
        answers = moment.exchange.answers(MessageType.TRAIN, messages)
        return self._after_the_others(attack, moment, messages, answers)

    def _after_the_others(
        self, attack: NamedAttack, moment: Moment, messages: Sequence[Message], answers: Iterable[Message]
    ) -> Iterator[Message]:
        partition = moment.rule.node_directory.partition
        held: list[Message] = []
        honest: dict[int, dict[str, NDArray]] = {}
        for answer in answers:
            client, entries = partition(answer.metadata.src_node_id), _stepped(answer, moment.stepped)
            if entries and client in self.attackers:
                held.append(answer)
                continue
            if entries:
                honest[client] = entries
            yield answer
        if held and honest:
            got = messages[0].content.array_records[ARRAYS]
            x = {name: viewed(got[name]) for name in next(iter(honest.values()))}
            models = [honest[client] for client in sorted(honest)]
            made = FROM_THE_OTHERS[attack.name](x, models, len(held), attack.argument)
            for answer in held:
                sent = dict(answer.content.array_records[ARRAYS])
                sent |= {name: encoded(entry) for name, entry in made.items()}
                answer.content[ARRAYS] = ArrayRecord(sent)
        yield from held

    def evaluate(
        self, model: ArrayRecord, settings: Mapping[str, Any], moment: Moment
    ) -> Mapping[str, PhaseReport]:
        """Have honest clients evaluate the model on patched examples; no report is of other clients."""
        if self.backdoor and moment.shared:
            self.tried = moment.number
            asked = {**settings, EVAL_SPLITS: PATCHED}
            report = evaluated_by(self.patched, ATTACK_SUCCESS, model, asked, moment)
            hits, counts = report.numbers("accuracy"), report.numbers("eval-examples")
            examples = sum(counts.values())
            self.success = sum(hits[p] * counts[p] for p in hits) / examples if examples else None
        return {}

    def after_round(self, result: RoundResult) -> None:
        self.answered = [p for p in result.train.metrics if p in self.attackers]
        self.all_told += len(self.answered)
        metric, split = self.run.compared_by, result.prefix
        honest = [v for p, v in result.evaluate.numbers(split + metric).items() if p not in self.attackers]
        self.now = {ATTACKERS: len(self.answered)}
        if honest:
            self.now[f"{HONEST}{metric}"] = float(np.mean(honest))
        if self.success is not None and self.tried == result.server_round:
            self.now[ATTACK_SUCCESS] = self.success

    # ---- what is written -----------------------------------------------------------------------------

    def columns(self) -> Mapping[str, float | Mapping[int, float]]:
        return {**self.now, ATTACKER: dict.fromkeys(self.answered, 1)}

    def summary(self) -> Mapping[str, Any]:
        found = {"name": self.run.config["attack"], "attackers": sorted(self.attackers)}
        found |= {"answers": self.all_told}
        return {"attack": {**found, **({"success": self.success} if self.backdoor else {})}}

    def state(self) -> Mapping[str, Any]:
        return {"answers": self.all_told, "success": self.success}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.all_told, self.success = int(state.get("answers", 0)), state.get("success")


def _alone(
    attack: NamedAttack, x: Mapping[str, NDArray], trained: dict[str, NDArray], rng: np.random.Generator
) -> dict[str, NDArray]:
    """Return what an attacker sends of what it trained."""
    size = attack.argument or 0.0
    if attack.name == "gaussian":
        return noise(x, list(trained), size, rng)
    return scaled(x, trained, -size if attack.name == "sign-flip" else size)


def _stepped(answer: Message, names: Sequence[str]) -> dict[str, NDArray]:
    """Return the stepped entries of an answer; none of one that the server will not use."""
    record = answer.content.get(ARRAYS) if answer.has_content() else None
    if not isinstance(record, ArrayRecord) or not set(names) <= record.keys():
        return {}
    entries = {name: viewed(record[name]) for name in names}
    return entries if all(map(all_finite, entries.values())) else {}
