"""The extensions of a run: what is called of them, in which order, and what they may return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from fedbn_flower.clients.returned import WrongResult

from ..config.extension_names import EXTENSION, extension_names
from ..config.run_config import RunConfig
from ..core.errors import RunFailed, not_allowed
from ..core.files import json_text
from ..extensions import BUILT_IN, Extension, Stop
from ..names import as_user_error, short
from ..records.columns import COSTS, PRIVACY, RATES, ROUND_COLUMNS, SIMULATED_SECONDS, STALENESS_OF_ROUND
from ..records.events import RoundResult, RunInfo

TAKEN = frozenset({*ROUND_COLUMNS, *COSTS, *RATES, *PRIVACY, *STALENESS_OF_ROUND, SIMULATED_SECONDS})
"""Columns of ``metrics.csv`` that are others'."""


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

    def after_round(self, result: RoundResult) -> tuple[RoundResult, str]:
        """Return a round with what they make of it, and why the first that ends the run does; else ""."""
        reasons, opinions, facts = [], [], {}
        for name, extension in {**self.built_in, **self.named}.items():
            with _mistakes_of(name):
                if stop := _checked(extension, "after_round", extension.after_round(result), Stop | None):
                    reasons.append(stop.reason)
                opinions.append(_checked(extension, "keeps", extension.keeps(), bool | None))
                if columns := _columns(extension, result):
                    facts[name] = columns
        made = replace(
            result,
            last=result.last or bool(reasons),
            improved=True in opinions,
            kept=False not in opinions,
            facts=facts,
        )
        return made, next(iter(reasons), "")

    def summary(self) -> dict[str, Any]:
        """Return what ``summary.json`` has of them; of the run's own in ``extensions``, by name."""
        found: dict[str, Any] = {}
        for extension in self.built_in.values():
            found |= extension.summary()
        own = {name: _plain(name, one, "summary") for name, one in self.named.items()}
        return found | ({"extensions": own} if any(own.values()) else {})

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of them, by name."""
        return {name: _plain(name, one, "state") for name, one in {**self.built_in, **self.named}.items()}

    def restore(self, states: Mapping[str, Any], account: Mapping[str, Any]) -> None:
        """Go on from a `state`; ``account`` has that of the built-in ones up to version 0.2."""
        for name, extension in self.built_in.items():
            extension.restore(states.get(name, account))
        for name, extension in self.named.items():
            with _mistakes_of(name):
                extension.restore(states.get(name, {}))


def extensions_of(config: RunConfig, info: RunInfo) -> Extensions:
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
    return Extensions({cls.__name__.lower(): cls(info) for cls in BUILT_IN}, named)


def _mistakes_of(name: str) -> AbstractContextManager[None]:
    return as_user_error(EXTENSION.key, name, RunFailed)


def _checked(extension: Extension, method: str, value: Any, wanted: Any) -> Any:
    """Return what a method gave; a WrongResult if it may not give that."""
    if not isinstance(value, wanted):
        expected = "Stop(reason) or None" if method == "after_round" else "True, False or None"
        raise WrongResult(extension, method, value, expected)
    return value


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


def _plain(name: str, extension: Extension, method: str) -> dict[str, Any]:
    """Return what a method gave, which JSON has to hold."""
    with _mistakes_of(name):
        found: object = getattr(extension, method)()
        if not isinstance(found, Mapping):
            raise WrongResult(extension, method, found, "a mapping of values that JSON can hold")
        try:
            json_text(dict(found))
        except (TypeError, ValueError):
            raise WrongResult(extension, method, found, "values that JSON can hold") from None
        return dict(found)
