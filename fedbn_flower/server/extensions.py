"""Call the hooks of a run's extensions in order, and check what they return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

from ..config.named_algorithms import EXTENSION, extension_classes, extension_names
from ..config.run_config import RunConfig
from ..core.errors import RunFailed
from ..core.files import json_text
from ..core.ground.columns import COSTS, ROUND_COLUMNS
from ..core.ground.wire import EXTENSIONS
from ..extensions import Moment, ServerHook, SiteHook, Stop
from ..extensions.at_site import HOOKS
from ..extensions.declared import overrides
from ..names import as_user_error, short
from ..records.events import RoundResult, RunInfo
from .refusals import ONE_LINE_ERRORS

TAKEN = frozenset({*ROUND_COLUMNS, *COSTS})
"""The columns of ``metrics.csv`` of every run."""
COLUMNS = "numbers by the name of a column"
MAPPING = (Mapping, "a mapping of values that JSON can hold")
RESULTS: Mapping[str, tuple[Any, str]] = {
    "before_round": (Stop | None, "Stop(reason) or None"),
    "send": (ArrayRecord, "an ArrayRecord"),
    "settings": (Mapping, "a mapping"),
    "received": (Message, "a Message"),
    "published": (ArrayRecord, "an ArrayRecord"),
    "evaluate": (Mapping, "a mapping of PhaseReports"),
    "after_round": (Stop | RoundResult | None, "Stop(reason) or None, or a RoundResult"),
    "columns": (Mapping, COLUMNS),
    "summary": MAPPING,
    "state": MAPPING,
}
"""The types that a hook may return, and their description for errors."""


@dataclass(frozen=True)
class Extensions:
    """All extensions of a run.

    Parameters
    ----------
    all : Mapping[str, ServerHook]
        By the name used in messages and files, ordered from the wire inwards.
    at_sites : str
        The names of those that a site has to load, separated by commas.
    """

    all: Mapping[str, ServerHook]
    at_sites: str

    @cached_property
    def to_the_wire(self) -> Mapping[str, ServerHook]:
        """All by name, in the opposite order."""
        return {name: self.all[name] for name in reversed(tuple(self.all))}

    @property
    def notices(self) -> list[str]:
        """Settings that are allowed, but probably not intended."""
        return [line for one in self.all.values() for line in one.notices]

    def before_round(self, server_round: int) -> bool:
        """Return whether the round that is about to begin is to be the last one."""
        return any([self._call(name, "before_round", server_round) for name in self.all])

    def prepare(self, moment: Moment) -> None:
        """Call `ServerHook.prepare` of all extensions."""
        for name in self.all:
            self._call(name, "prepare", moment)
        moment.exchange.read = partial(self._received, moment)
        if isinstance(moment.rule, AsksFirst):
            moment.rule.node_asking = partial(moment.exchange.answers, MessageType.EVALUATE, counted=False)

    def send(self, model: ArrayRecord, moment: Moment) -> ArrayRecord:
        """Return the model as clients get it."""
        for name in self.to_the_wire:
            model = self._call(name, "send", model, moment)
        return model

    def settings(self, phase: str, moment: Moment) -> dict[str, Any]:
        """Return the settings that messages of a phase carry in addition to the model."""
        found: dict[str, Any] = {}
        for name in self.to_the_wire:
            found |= self._call(name, "settings", phase, moment)
        return {**found, **({EXTENSIONS: self.at_sites} if self.at_sites else {})}

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
        """Return the evaluations of the next model by clients that do not train, by phase name."""
        found: dict[str, PhaseReport] = {}
        for name in self.all:
            found |= self._call(name, "evaluate", model, settings, moment)
        return found

    def after_round(self, result: RoundResult) -> RoundResult:
        """Return the round as changed by the extensions; the first that ends the run gives the reason."""
        facts: dict[str, dict[str, float]] = {}
        of_clients: dict[int, dict[str, float]] = {}
        for name in self.all:
            found = self._call(name, "after_round", result)
            if isinstance(found, Stop):
                result = replace(result, stopped=result.stopped or found.reason)
            else:
                result = found or result
            for column, value in self._columns(name, result):
                if not isinstance(value, Mapping):
                    facts.setdefault(name, {})[column] = value
                    continue
                for partition, number in value.items():
                    of_clients.setdefault(partition, {})[column] = number
        last = result.last or bool(result.stopped)
        return replace(result, last=last, facts=facts, facts_of_clients=of_clients)

    def _columns(self, name: str, result: RoundResult) -> Iterator[tuple[str, float | Mapping[int, float]]]:
        """Yield the columns of an extension in a round.

        Raises
        ------
        RunFailed
            For a name that is taken, or values that are not numbers.
        """
        extension, columns = self.all[name], self._call(name, "columns")
        others = {column for one in self.all.values() if one is not extension for column in one.reserves}
        for column, value in columns.items():
            numbers = value if isinstance(value, Mapping) else {0: value}
            named = isinstance(column, str) and column.isprintable()
            if not (named and all(isinstance(p, int) and isinstance(n, Real) for p, n in numbers.items())):
                with _mistakes_of(name):
                    raise WrongResult(extension, "columns", {column: value}, COLUMNS)
            if column in TAKEN or column in others or column in result.metrics or column in result.spread:
                method = f"{type(extension).__name__}.columns"
                raise RunFailed(f"{EXTENSION.key}: {method} returned {column!r}, which is another's column")
            yield column, value

    @property
    def header(self) -> list[str]:
        """The extensions' columns of ``metrics.csv``, present from the first round on."""
        return [column for one in self.all.values() for column in one.header]

    def _call(self, name: str, method: str, *arguments: Any) -> Any:
        """Call a hook and check its result; an error names the extension."""
        extension = self.all[name]
        with _mistakes_of(name):
            found = getattr(extension, method)(*arguments)
            wanted, words = RESULTS.get(method, (object, ""))
            if not isinstance(found, wanted):
                raise WrongResult(extension, method, found, words)
            return found

    def summary(self) -> dict[str, Any]:
        """Return the extensions' part of ``summary.json``: top-level entries, and ``extensions`` by name."""
        beside: dict[str, Any] = {}
        found: dict[str, Any] = {}
        for name, extension in self.all.items():
            said = _plain(name, extension, "summary", self._call(name, "summary"))
            if extension.beside:
                beside |= said
            elif said:
                found[name] = said
        return beside | ({"extensions": found} if found else {})

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Return the state for a checkpoint: JSON values by extension name, and arrays by ``NAME/KEY``."""
        plain: dict[str, Any] = {}
        arrays: dict[str, NDArray] = {}
        for name, extension in self.all.items():
            found = self._call(name, "state")
            of_this = {key: value for key, value in found.items() if isinstance(value, np.ndarray)}
            arrays |= {f"{name}/{key}": array for key, array in of_this.items()}
            others = {key: value for key, value in found.items() if key not in of_this}
            if kept := _plain(name, extension, "state", others):
                plain[name] = kept
        return plain, arrays

    def restore(self, states: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> None:
        """Go on from a `state`."""
        for name in self.all:
            of_this = {
                key.removeprefix(f"{name}/"): a for key, a in arrays.items() if key.startswith(f"{name}/")
            }
            self._call(name, "restore", {**states.get(name, {}), **of_this})


def extensions_of(
    config: RunConfig, info: RunInfo, collaborators: Mapping[str, Mapping[str, Any]]
) -> Extensions:
    """Make the extensions of a run.

    Parameters
    ----------
    config : RunConfig
        The run's.
    info : RunInfo
        The run.
    collaborators : Mapping[str, Mapping[str, Any]]
        Constructor arguments in addition to the run and the settings, by extension name.

    Raises
    ------
    UserError
        If one cannot be constructed, or two have the same name.
    """
    named = extension_names(config.extension)
    made: dict[str, ServerHook] = {}
    for name, cls in extension_classes(config.to_user_config()).items():
        settings = {key.strip("_"): value for key, value in config.settings_for(cls).items()}
        with as_user_error(EXTENSION.key, name):
            made[name] = cls(info, **settings, **collaborators.get(name, {}))
    at_sites = [name for name in named if overrides(EXTENSION.find(name), SiteHook, HOOKS)]
    return Extensions(made, ",".join(map(short, at_sites)))


def may_run_in_workers(config: RunConfig) -> bool:
    """Return whether workers may sum a group's updates, with the work of all extensions on these updates."""
    return not config.needs_all_answers and all(
        cls.in_workers
        or not (overrides(cls, SiteHook, ("trained",)) or overrides(cls, ServerHook, ("received",)))
        for cls in extension_classes(config.to_user_config()).values()
    )


def nodes_keep_state(config: RunConfig) -> bool:
    """Return whether clients need the state that their nodes keep between messages."""
    values = config.to_user_config()
    return any(cls.about(values).keeps_state for cls in extension_classes(values).values())


def _mistakes_of(name: str) -> AbstractContextManager[None]:
    return as_user_error(EXTENSION.key, name, RunFailed, ONE_LINE_ERRORS)


def _plain(name: str, extension: ServerHook, method: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a method's result; refuse values that are not JSON."""
    with _mistakes_of(name):
        try:
            json_text(dict(found))
        except (TypeError, ValueError):
            raise WrongResult(extension, method, found, "values that JSON can hold") from None
        return dict(found)
