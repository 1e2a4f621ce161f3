"""The search that a command line describes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import UserConfigValue

from ..config.help import as_text
from ..config.making import run_config
from ..config.run_config import RunConfig
from ..core.errors import not_allowed
from ..results.resume import MAY_CHANGE, as_before, is_fixed
from .search_folder import read_search
from .space import Dimension, parse_space

TRIALS, VALIDATION = 20, 0.1
CHANGEABLE = MAY_CHANGE - {"rounds"}
"""Keys that may have new values when a search is resumed."""


@dataclass(frozen=True)
class Search:
    """A search: the trials are runs with these keys and settings, plus values from the search space.

    ``note`` is a line to show to the user.
    """

    values: Mapping[str, UserConfigValue]
    space: tuple[Dimension, ...]
    trials: int
    note: str = ""

    def config(self, chosen: Mapping[str, UserConfigValue], **further_keys: UserConfigValue) -> RunConfig:
        """Return the configuration of a trial; further keys are given with underscores."""
        further = {key.replace("_", "-"): value for key, value in further_keys.items()}
        return run_config({**self.values, **chosen, **further})

    def configs(self) -> list[RunConfig]:
        """Return configurations that contain each choice, and both ends of each range, at least once."""
        first = {dimension.key: dimension.ends[0] for dimension in self.space}
        return [self.config({**first, d.key: end}) for d in self.space for end in d.ends]

    def description(self) -> dict[str, Any]:
        """Return the content of ``search.json``, without the best trial."""
        keys = {dimension.key for dimension in self.space} | {"run-dir", "resume"}
        config = self.configs()[0].to_user_config()
        return {
            "search": {dimension.key: str(dimension) for dimension in self.space},
            "trials": self.trials,
            "values": {key: value for key, value in self.values.items() if key not in ("run-dir", "resume")},
            "configuration": {key: value for key, value in config.items() if key not in keys},
        }

    def arguments(self, chosen: Mapping[str, UserConfigValue]) -> list[str]:
        """Return the command-line arguments of a run with these values."""
        given = {key: value for key, value in self.values.items() if key not in ("run-dir", "resume")}
        return [word for key, value in {**given, **chosen}.items() for word in (f"--{key}", as_text(value))]


def new_search(values: Mapping[str, UserConfigValue], texts: Sequence[str], trials: str | None) -> Search:
    """Return a search over values of one configuration, after checking its keys and values.

    Raises
    ------
    UserError
        For a key or value that is not allowed.
    """
    note = ""
    if "val-fraction" not in values:
        values = {**values, "val-fraction": VALIDATION}
        note = f"val-fraction: {VALIDATION} of the training set is held out to compare the trials on"
    search = Search(values, parse_space(list(texts), values), _parse_trials(trials, TRIALS), note)
    if not search.configs()[0].val_fraction:
        raise not_allowed(
            "val-fraction",
            values["val-fraction"],
            "more than 0, to compare the trials of search",
        )
    return search


def resumed_search(folder: Path, values: Mapping[str, UserConfigValue], trials: str | None) -> Search:
    """Return the search in a folder, some of whose keys may have new values.

    Raises
    ------
    UserError
        For a key that must not change, or when its file cannot be read.
    """
    if fixed := values.keys() - CHANGEABLE - {"resume"}:
        raise is_fixed(min(fixed), values[min(fixed)], {*CHANGEABLE, "trials"})
    stored = read_search(folder)
    changed = {key: value for key, value in values.items() if key != "resume"}
    texts = [f"{key}={text}" for key, text in stored["search"].items()]
    configuration = stored["configuration"]
    before = {key: v for key, v in as_before(configuration).items() if key not in configuration}
    before["dataset"] = configuration["dataset"]
    search = new_search({**before, **stored["values"], **changed}, texts, trials or str(stored["trials"]))
    return Search({**search.values, "run-dir": str(folder)}, search.space, search.trials)


def _parse_trials(text: str | None, default: int) -> int:
    if text is None:
        return default
    if not text.isdigit() or not int(text):
        raise not_allowed("trials", text, "a whole number >= 1")
    return int(text)
