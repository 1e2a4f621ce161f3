"""The extensions of a run: what is called of them, in which order, and what they may return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from numbers import Real
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MessageType
from numpy.typing import NDArray

from fedbn_flower.clients.returned import WrongResult
from fedbn_flower.strategies import PhaseReport
from fedbn_flower.strategies.asking import AsksFirst

from ..config.extension_names import EXTENSION, extension_names
from ..config.run_config import RunConfig
from ..core.errors import RunFailed, not_allowed
from ..core.files import json_text
from ..core.ground.columns import (
    ATTACK_SUCCESS,
    ATTACKERS,
    COSTS,
    PRIVACY,
    RATES,
    ROUND_COLUMNS,
    SIMULATED_SECONDS,
    STALENESS_OF_ROUND,
)
from ..core.ground.settings import overridden
from ..core.ground.wire import EXTENSIONS
from ..extensions import Extension, Moment, Stop
from ..names import as_user_error, short
from ..records.events import RoundResult, RunInfo

TAKEN = frozenset(
    {
        *ROUND_COLUMNS,
        *COSTS,
        *RATES,
        *PRIVACY,
        *STALENESS_OF_ROUND,
        SIMULATED_SECONDS,
        ATTACKERS,
        ATTACK_SUCCESS,
    }
)
"""Columns of ``metrics.csv`` that are others'."""
RESULTS: Mapping[str, tuple[Any, str]] = {
    "before_round": (Stop | None, "Stop(reason) or None"),
    "choose": (Sequence, "some of the partitions"),
    "send": (ArrayRecord, "an ArrayRecord"),
    "settings": (Mapping, "a mapping"),
    "received": (Message, "a Message"),
    "published": (ArrayRecord, "an ArrayRecord"),
    "evaluate": (Mapping, "a mapping of PhaseReports"),
    "recorded": (RoundResult, "a RoundResult"),
    "after_round": (Stop | None, "Stop(reason) or None"),
    "keeps": (bool | None, "True, False or None"),
}
"""What a hook may return, and in words."""
Collaborators = Mapping[type[Extension], Mapping[str, Any]]
"""What built-in extensions are made of beside the run, by class."""


@dataclass(frozen=True)
class Extensions:
    """All extensions of a run by name, in the order in which they decide: the built-in ones, then its own.

    Parameters
    ----------
    built_in, named : Mapping[str, Extension]
        By the name in messages and files.
    """

    built_in: Mapping[str, Extension]
    named: Mapping[str, Extension]

    @property
    def own(self) -> Iterable[Extension]:
        """Those that the run names."""
        return self.named.values()

    @cached_property
    def all(self) -> Mapping[str, Extension]:
        """All by name, in the order from the wire."""
        return {**self.built_in, **self.named}

    @cached_property
    def to_the_wire(self) -> Mapping[str, Extension]:
        """All by name, in the opposite order."""
        return {name: self.all[name] for name in reversed(tuple(self.all))}

    @property
    def notices(self) -> list[str]:
        """What is allowed, but hardly meant."""
        return [line for one in self.all.values() for line in one.notices()]

    def before_round(self, server_round: int) -> bool:
        """Return whether the round that is about to begin is to be the last one."""
        return any([self._call(name, "before_round", server_round) for name in self.all])

    def prepare(self, moment: Moment) -> None:
        """Have all set what the round needs."""
        for name in self.all:
            self._call(name, "prepare", moment)
        choosing = [name for name in self.all if self._overrides(name, "choose")]

        def choice(partitions: Sequence[int], server_round: int) -> Sequence[int]:
            for name in choosing:
                partitions = self._call(name, "choose", partitions, server_round)
            return partitions

        moment.rule.node_choice = choice if choosing else None
        moment.exchange.read = partial(self._received, moment)
        if isinstance(moment.rule, AsksFirst):
            moment.rule.node_asking = partial(moment.exchange.answers, MessageType.EVALUATE, counted=False)

    def send(self, model: ArrayRecord, moment: Moment) -> ArrayRecord:
        """Return the model as clients get it."""
        for name in self.to_the_wire:
            model = self._call(name, "send", model, moment)
        return model

    def settings(self, phase: str, moment: Moment) -> dict[str, Any]:
        """Return what messages of a phase say beside the model."""
        found: dict[str, Any] = {}
        for name in self.to_the_wire:
            found |= self._call(name, "settings", phase, moment)
        at_clients = [name for name in self.named if self._overrides(name, "trained")]
        return {**found, **({EXTENSIONS: ",".join(at_clients)} if at_clients else {})}

    def asked(self, partitions: Sequence[int], moment: Moment) -> None:
        """Tell all which clients are about to be asked to train."""
        for name in self.to_the_wire:
            self._call(name, "asked", partitions, moment)

    def answers(
        self, moment: Moment, model: ArrayRecord, configure: Callable[[], Iterable[Message]]
    ) -> Iterable[Message] | None:
        """Return the answers to the round's train messages, of the first that gets them its own way."""
        found = (one.answers(moment, model, configure) for one in self.all.values())
        return next((answers for answers in found if answers is not None), None)

    def _received(self, moment: Moment, answer: Message, asked: Message) -> Message:
        for name in self.all:
            answer = self._call(name, "received", answer, asked, moment)
        return answer

    def published(
        self, model: ArrayRecord, before: ArrayRecord, sent: ArrayRecord, moment: Moment
    ) -> ArrayRecord:
        """Return the server's next model."""
        for name in self.all:
            model = self._call(name, "published", model, before, sent, moment)
        return model

    def evaluate(
        self, model: ArrayRecord, settings: Mapping[str, Any], moment: Moment
    ) -> dict[str, PhaseReport]:
        """Return what clients that do not train found of the next model, by the name of a phase."""
        found: dict[str, PhaseReport] = {}
        for name in self.all:
            found |= self._call(name, "evaluate", model, settings, moment)
        return found

    def after_round(self, result: RoundResult) -> tuple[RoundResult, str]:
        """Return a round with what they make of it, and why the first that ends the run does; else ""."""
        for name in self.all:
            result = self._call(name, "recorded", result)
        stops, opinions, facts = [], [], dict[str, Mapping[str, float]]()
        of_clients: dict[int, dict[str, float]] = {}
        for name, extension in self.all.items():
            stops.append(self._call(name, "after_round", result))
            opinions.append(self._call(name, "keeps"))
            with _mistakes_of(name):
                facts[name] = _columns(extension, result) if name in self.named else extension.columns()
                for partition, columns in extension.columns_of_clients().items():
                    of_clients.setdefault(partition, {}).update(columns)
        reasons = [stop.reason for stop in stops if stop]
        made = replace(
            result,
            last=result.last or bool(reasons),
            improved=True in opinions,
            kept=False not in opinions,
            facts={name: columns for name, columns in facts.items() if columns},
            facts_of_clients=of_clients,
        )
        return made, next(iter(reasons), "")

    def on_round(self, result: RoundResult) -> None:
        """Tell the built-in ones of a round that is written; a run's own ones are among its observers."""
        for extension in self.built_in.values():
            extension.on_round(result)

    def check_end(self) -> None:
        """Check a run that is over; see `Extension.check_end`."""
        for name in self.all:
            self._call(name, "check_end")

    @property
    def header(self) -> list[str]:
        """The columns of ``metrics.csv`` that are there from the first round on."""
        return [column for one in self.all.values() for column in one.header()]

    def _call(self, name: str, method: str, *arguments: Any) -> Any:
        """Return what a hook returns; a run's own extension has its result checked, and its errors named."""
        extension = self.all[name]
        if name in self.built_in:
            return getattr(extension, method)(*arguments)
        with _mistakes_of(name):
            found = getattr(extension, method)(*arguments)
            wanted, words = RESULTS.get(method, (object, ""))
            if not isinstance(found, wanted):
                raise WrongResult(extension, method, found, words)
            return found

    def _overrides(self, name: str, method: str) -> bool:
        return bool(overridden(type(self.all[name]), Extension, (method,)))

    def summary(self) -> dict[str, Any]:
        """Return what ``summary.json`` has of them; of the run's own in ``extensions``, by name."""
        found: dict[str, Any] = {}
        for extension in self.built_in.values():
            found |= extension.summary()
        own = {
            name: _plain(name, one, "summary", _mapping(name, one, "summary"))
            for name, one in self.named.items()
        }
        said = {**found.get("extensions", {}), **(own if any(own.values()) else {})}
        return found | ({"extensions": said} if said else {})

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Return what a checkpoint keeps: values that JSON can hold by name, and arrays by ``NAME/KEY``."""
        plain: dict[str, Any] = {}
        arrays: dict[str, NDArray] = {}
        for name, extension in self.all.items():
            found = _mapping(name, extension, "state")
            of_this = {key: value for key, value in found.items() if isinstance(value, np.ndarray)}
            arrays |= {f"{name}/{key}": array for key, array in of_this.items()}
            others = {key: value for key, value in found.items() if key not in of_this}
            if kept := _plain(name, extension, "state", others):
                plain[name] = kept
        return plain, arrays

    def restore(
        self, states: Mapping[str, Any], arrays: Mapping[str, NDArray], account: Mapping[str, Any]
    ) -> None:
        """Go on from a `state`; ``account`` has that of the built-in ones up to version 0.2."""
        for name, extension in self.all.items():
            of_this = {
                key.removeprefix(f"{name}/"): a for key, a in arrays.items() if key.startswith(f"{name}/")
            }
            before = account if name in self.built_in else {}
            with _mistakes_of(name):
                extension.restore({**states.get(name, before), **of_this})


def extensions_of(config: RunConfig, info: RunInfo, collaborators: Collaborators) -> Extensions:
    """Make the extensions of a run.

    Raises
    ------
    UserError
        When one cannot be made, or two have the same name.
    """
    named: dict[str, Extension] = {}
    for name in extension_names(config.extension):
        cls = EXTENSION.find(name)
        settings = {key.strip("_"): value for key, value in config.settings_for(cls).items()}
        if short(name) in named:
            raise not_allowed(EXTENSION.key, config.extension, f"each name once, not {short(name)!r} twice")
        with as_user_error(EXTENSION.key, name):
            named[short(name)] = cls(info, **settings)
    built_in = {
        cls.__name__.lower(): cls(info, **collaborators.get(cls, {})) for cls in config.built_in_extensions
    }
    return Extensions(built_in, named)


def may_run_in_workers(config: RunConfig) -> bool:
    """Return whether a worker that sums the updates of a group can do all that extensions do to them."""
    classes = [*config.built_in_extensions, *map(EXTENSION.find, extension_names(config.extension))]
    hooks = ("trained", "received")
    return not config.needs_all_answers and all(
        cls.in_workers or not overridden(cls, Extension, hooks) for cls in classes
    )


def nodes_keep_state(config: RunConfig) -> bool:
    """Return whether clients need what their nodes keep from one message to the next."""
    return any(cls.keeps_state(config) for cls in config.built_in_extensions)


def _mistakes_of(name: str) -> AbstractContextManager[None]:
    return as_user_error(EXTENSION.key, name, RunFailed)


def _columns(extension: Extension, result: RoundResult) -> dict[str, float]:
    """Return the columns of an extension in a round; a WrongResult if they are no numbers by name."""
    columns: object = extension.columns()
    wanted = "numbers by the name of a column"
    if not isinstance(columns, Mapping):
        raise WrongResult(extension, "columns", columns, wanted)
    for name, value in columns.items():
        if not (isinstance(name, str) and name.isprintable() and isinstance(value, Real)):
            raise WrongResult(extension, "columns", {name: value}, wanted)
        if name in TAKEN or name in result.metrics or name in result.spread:
            method = f"{type(extension).__name__}.columns"
            raise RunFailed(f"{EXTENSION.key}: {method} returned {name!r}, which is another's column")
    return {name: float(value) for name, value in columns.items()}


def _mapping(name: str, extension: Extension, method: str) -> dict[str, Any]:
    """Return what a method gave, which has to be a mapping."""
    with _mistakes_of(name):
        found: object = getattr(extension, method)()
        if not isinstance(found, Mapping):
            raise WrongResult(extension, method, found, "a mapping of values that JSON can hold")
        return dict(found)


def _plain(name: str, extension: Extension, method: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a method gave, which JSON has to hold."""
    with _mistakes_of(name):
        try:
            json_text(dict(found))
        except (TypeError, ValueError):
            raise WrongResult(extension, method, found, "values that JSON can hold") from None
        return dict(found)
