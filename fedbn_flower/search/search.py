"""What a command line asks to be searched."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import UserConfigValue

from ..config.help import as_text
from ..config.run_config import RunConfig
from ..core.errors import UserError, not_allowed
from ..results.resume import MAY_CHANGE
from .search_folder import FACTS, stored_search
from .space import Searched, parse_space

TRIALS, VALIDATION = 20, 0.1
AGAIN = MAY_CHANGE - {"rounds"}
"""Keys that a search which goes on may be given anew."""


@dataclass(frozen=True)
class Search:
    """A search: all trials are runs with these keys and settings, and values of what is searched.

    ``told`` is what a user should know of it, in a line.
    """

    values: Mapping[str, UserConfigValue]
    space: tuple[Searched, ...]
    trials: int
    told: str = ""

    def config(self, chosen: Mapping[str, UserConfigValue], **own: UserConfigValue) -> RunConfig:
        """The configuration of a trial; further keys with underscores."""
        further = {key.replace("_", "-"): value for key, value in own.items()}
        return RunConfig.of({**self.values, **chosen, **further})

    def configs(self) -> list[RunConfig]:
        """Configurations that have every choice, and both ends of every range, at least once."""
        first = {searched.key: searched.ends[0] for searched in self.space}
        return [self.config({**first, s.key: end}) for s in self.space for end in s.ends]

    def facts(self) -> dict[str, Any]:
        """What ``search.json`` tells of it."""
        keys = {searched.key for searched in self.space} | {"run-dir", "resume"}
        config = self.configs()[0].to_user_config()
        return {
            "search": {searched.key: str(searched) for searched in self.space},
            "trials": self.trials,
            "values": {key: value for key, value in self.values.items() if key not in ("run-dir", "resume")},
            "configuration": {key: value for key, value in config.items() if key not in keys},
        }

    def arguments(self, chosen: Mapping[str, UserConfigValue]) -> list[str]:
        """What the command line of a run with these values has."""
        given = {key: value for key, value in self.values.items() if key not in ("run-dir", "resume")}
        return [word for key, value in {**given, **chosen}.items() for word in (f"--{key}", as_text(value))]


def new_search(values: Mapping[str, UserConfigValue], texts: Sequence[str], trials: str | None) -> Search:
    """A search for one configuration's values; everything that is given is checked.

    Raises
    ------
    UserError
        For what is not allowed.
    """
    told = ""
    if "val-fraction" not in values:
        values = {**values, "val-fraction": VALIDATION}
        told = f"val-fraction: {VALIDATION}, the share of the training set that trials are compared on"
    search = Search(values, parse_space(list(texts), values), _number(trials, TRIALS), told)
    if not search.configs()[0].val_fraction:
        raise not_allowed("val-fraction", values["val-fraction"], "more than 0 with search, which needs it")
    return search


def resumed_search(values: Mapping[str, UserConfigValue], trials: str | None) -> Search | None:
    """The search that ``resume`` names; None if it names no search's folder.

    Raises
    ------
    UserError
        For a key that it may not be given anew, .
    """
    folder = Path(str(values["resume"]))
    if not (folder / FACTS).exists():
        return None
    if fixed := values.keys() - AGAIN - {"resume"}:
        told = f"with resume, which takes the search's; expected only {', '.join(sorted({*AGAIN, 'trials'}))}"
        raise UserError(f"{min(fixed)}: {values[min(fixed)]!r} is not allowed {told}")
    stored = stored_search(folder)
    again = {key: value for key, value in values.items() if key != "resume"}
    texts = [f"{key}={text}" for key, text in stored["search"].items()]
    search = new_search({**stored["values"], **again}, texts, trials or str(stored["trials"]))
    return Search({**search.values, "run-dir": str(folder)}, search.space, search.trials)


def _number(text: str | None, default: int) -> int:
    if text is None:
        return default
    if not text.isdigit() or not int(text):
        raise not_allowed("trials", text, "a whole number >= 1")
    return int(text)
