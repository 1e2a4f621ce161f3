"""The search that a command line describes, over a space of ``KEY=LOW..HIGH`` and ``KEY=A,B,C``."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import UserConfigValue
from pydantic.fields import FieldInfo

from ..cli.parser import FORM, TRIALS
from ..config.gone import refuse_gone
from ..config.help import as_text
from ..config.keys import RUN_KEYS, SECTIONS, Evaluation, Folder, Runtime, title_of
from ..config.making import run_config
from ..config.named_algorithms import NAMED, check_used, named, settings_of, with_full_paths
from ..config.run_config import RunConfig
from ..core.errors import UserError, not_allowed
from ..core.ground.settings import kinds_of
from ..results.resume import as_before, is_fixed
from .search_folder import CHANGEABLE, read_search
from .study import Dimension

FIXED = frozenset(
    {"dataset", "num-clients", "partition", "reference", "rounds", "seed", "settings", "val-fraction"}
    | {key for group in (Evaluation, Folder, Runtime) for key in SECTIONS[title_of(group)]}
)
"""Keys that cannot be searched: trials with different values could not be compared."""


def parse_space(texts: list[str], values: Mapping[str, Any]) -> tuple[Dimension, ...]:
    """Parse the texts of ``--search``, for a run with these keys and settings.

    Raises
    ------
    UserError
        For a wrong form, an unknown key, a key that cannot be searched, a key that is given twice, and for
        invalid bounds.
    """
    pairs = [text.partition("=") for text in texts]
    for text, (key, equals, values_text) in zip(texts, pairs, strict=True):
        if not (key and equals and values_text):
            raise not_allowed("search", text, FORM)
        refuse_gone(key, re.split(r"[,;]|\.\.", values_text))
        if key in FIXED:
            raise UserError(f"search: {key!r} cannot be searched, as its trials could not be compared")
        if key in values:
            raise UserError(f"{key}: given twice, the second time in search")
    keys = [key for key, _, _ in pairs]
    if repeated := {key for key in keys if keys.count(key) > 1}:
        raise UserError(f"search: {min(repeated)!r} is given twice")
    chosen = {key: _choices(key, text) for key, _, text in pairs if key in NAMED}
    runs = [named({**values, **{key: name}}) for key, names in chosen.items() for name in names]
    runs = runs or [named(values)]
    check_used({key: text for key, _, text in pairs}, runs)
    fields = {k: f for run in runs for a in run for k, f in settings_of(a.cls).items()} | RUN_KEYS
    return tuple(_dimension(key, text, fields[key]) for key, _, text in pairs)


def _dimension(key: str, text: str, field: FieldInfo) -> Dimension:
    kinds = set(kinds_of(field))
    numeric = bool(kinds & {int, float})
    if not numeric or ".." not in text:
        return Dimension(key, _choices(key, text))
    kind = float if float in kinds else int
    parts = text.split("..")
    try:
        low, high = map(kind, parts)
    except ValueError:
        numbers = "whole numbers" if kind is int else "numbers"
        raise not_allowed("search", f"{key}={text}", f"LOW..HIGH, two {numbers}") from None
    if not 0 < low < high < float("inf"):
        expected = "0 < LOW < HIGH, as the range is log-uniform (write single values as A,B,...)"
        raise not_allowed("search", f"{key}={text}", expected)
    return Dimension(key, (), low, high)


def _choices(key: str, text: str) -> tuple[str, ...]:
    choices = [part.strip() for part in text.split(";" if ";" in text else ",")]
    if len(choices) < 2 or len(set(choices)) < len(choices) or not all(choices):
        raise not_allowed("search", f"{key}={text}", f"{FORM}: at least two values, each once")
    return tuple(with_full_paths(key, choice) for choice in choices)


VALIDATION = 0.1


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
