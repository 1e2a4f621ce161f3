"""Read experiment files: TOML, YAML, or the JSON files of runs and sweeps.

YAML is read as its version 1.2 means it, in which ``off`` is a word and ``1e-3`` a number.
"""

import json
import re
import tomllib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import yaml

from ..config.gone import in_new_keys
from ..config.run_config import UP_TO_0_2_0
from ..config.trust import check_code, names_of
from ..core.errors import UserError, not_allowed
from ..core.free_memory import regular
from ..core.stored import EXPERIMENT
from ..results.manifest import NOT_KEYS
from ..results.resume import check_may_change
from .experiment import Experiment, parse_settings

PLAIN = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    "float": (
        r"[-+]?(([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)",
        list("-+.0123456789"),
    ),
}
"""Plain words that are no text, with their first letters (YAML 1.2.2, section 10.3.2)."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Plain values alone, and each key once.

    PyYAML reads version 1.1: ``off`` is false there, ``2024-01-01`` a date, ``12:30`` the number 750.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        found: dict[Hashable, Any] = super().construct_mapping(node, deep)
        keys = [self.construct_object(key) for key, _ in node.value]
        if twice := [key for key in found if keys.count(key) > 1]:
            raise ValueError(f"{twice[0]!r} is given twice")
        return found


for kind, (words, letters) in PLAIN.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(f"^(?:{words})$"), letters)


def parse_yaml(text: str) -> Any:
    """Return the content of a YAML document.

    Raises
    ------
    ValueError
        For other text, a tag other than those of plain values, or a key that is given twice.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


TOML = ".toml"
YAML = (".yaml", ".yml")
WRITTEN = (TOML, *YAML)
"""Suffixes of the files that people write."""
RUN_ONLY_KEYS = (*NOT_KEYS, "run-dir", "resume")
"""Entries of a run's ``config.json`` that do not apply to another run."""


def experiment_of(
    values: Mapping[str, str], sweep: Sequence[str], file: str | None, trust_code: str | None
) -> Experiment:
    """Return the experiment of the file, if any; values and lists of the flags override the file's.

    Parameters
    ----------
    values : Mapping[str, str]
        The flags of keys.
    sweep : Sequence[str]
        The texts of ``--sweep``.
    file, trust_code : str or None
        What ``--experiment`` and ``--trust-code`` say.

    Raises
    ------
    UserError
        For a key that is given twice, and as `read_experiment` and `check_code` do.
    """
    lists: dict[str, list[str]] = {}
    for key, found in parse_settings(sweep):
        if key in {*values, *lists}:
            raise UserError(f"{key}: given twice, the second time in sweep")
        lists[key] = found
    given = Experiment({}).overridden({**values, **lists})
    if not file:
        return given
    path = Path(file)
    experiment = read_experiment(path).overridden(given.values)
    if path.suffix not in WRITTEN and not _trusts_code(trust_code):
        check_code(experiment.names(), path, names_of(given.values))
    return experiment


def _trusts_code(said: str | None) -> bool:
    """Return whether code that a folder or a file names may be run."""
    if said not in (None, "true", "false"):
        raise not_allowed("trust-code", said, "true or false")
    return said == "true"


def read_experiment(path: Path) -> Experiment:
    """Read an experiment file; a run's ``config.json`` is one too.

    Raises
    ------
    UserError
        When the file cannot be read or is not an experiment; see `Experiment.of`.
    """
    try:
        text = regular(path).read_text(encoding="utf-8")
        given = _parsed(text, path.suffix)
    except RecursionError:
        raise UserError(f"experiment: {str(path)!r} cannot be read (it is nested too deeply)") from None
    except (OSError, ValueError) as error:
        guessed = path.suffix not in (*WRITTEN, ".json")  # that it is JSON
        if isinstance(error, ValueError) and guessed:
            expected = "a TOML or YAML file, or a run's config.json"
            raise not_allowed("experiment", str(path), expected) from None
        raise UserError(f"experiment: {str(path)!r} cannot be read ({error})") from error
    if not isinstance(given, dict):
        raise UserError(f"experiment: {str(path)!r} is not an experiment; expected keys with values")
    if "search" in given and "values" in given:
        raise not_allowed("experiment", str(path), "an experiment; a search is resumed with --resume FOLDER")
    if "versions" in given:
        given = {key: value for key, value in given.items() if key not in RUN_ONLY_KEYS}
    if "resume" in given:
        raise UserError(f"{path}: {not_allowed('resume', given['resume'], 'it on the command line')}")
    return Experiment.of(given if path.suffix in WRITTEN else _in_new_keys(given), str(path))


def _parsed(text: str, suffix: str) -> Any:
    """Return what a file says, in the form that its suffix tells; JSON is that of any other.

    Raises
    ------
    ValueError
        When it is not written so.
    """
    if suffix == TOML:
        return tomllib.loads(text)
    if suffix not in YAML:
        return json.loads(text)
    return parse_yaml(text)


def _in_new_keys(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a run or sweep of version 0.2 wrote, in the keys that there are."""
    found = in_new_keys(given)
    if isinstance(runs := given.get("runs"), list):
        found["runs"] = [in_new_keys(run) if isinstance(run, dict) else run for run in runs]
    return found


def resumed_sweep(values: Mapping[str, str]) -> Experiment:
    """Read the experiment of the sweep in the folder ``resume``; a few keys may have new values.

    Raises
    ------
    UserError
        For a key that must not change, or when the file cannot be read.
    """
    folder = Path(values["resume"])
    check_may_change(values, {"resume"})
    given = {key: value for key, value in values.items() if key != "resume"}
    experiment = read_experiment(folder / EXPERIMENT)
    experiment = replace(experiment, values={"dataset": UP_TO_0_2_0, **experiment.values})
    return experiment.overridden({**given, "run-dir": str(folder)})
