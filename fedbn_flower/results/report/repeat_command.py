"""Build the command that repeats a run."""

from collections.abc import Mapping
from typing import Any

from ...config.help import as_text
from ...config.keys import RUN_KEYS
from ...config.making import run_config
from ...config.named_algorithms import NOT_GIVEN, named, resolve
from ...config.trust import code_in
from ...core.errors import UserError
from ...core.session_objects import is_session_name
from ..manifest import NOT_KEYS

LOCATIONS = ("run-dir", "resume")
"""Keys that give a run's folder, not what the run does."""


def command_of(config: Mapping[str, Any]) -> list[str]:
    """Return the words of a run's command line, not yet quoted for a shell, from its ``config.json``.

    They give the keys that differ from their defaults and do not follow from the others. User code is not run
    for this, so all of its settings are given. A Python object passed to `simulate` appears under a name that
    no command line accepts.
    """
    given = {key: value for key, value in config.items() if key not in (*NOT_KEYS, *LOCATIONS)}
    defaults: dict[str, Any] = {key: field.default for key, field in RUN_KEYS.items()}
    run_keys = {key: value for key, value in given.items() if key in RUN_KEYS}
    known = {key: value for key, value in run_keys.items() if not code_in(key, str(value))}
    try:
        algorithms = [found for found in named(known) if found.kind in known]
        settings = resolve(algorithms, run_keys)
    except UserError:  # an algorithm that is not available now
        settings = {}
    defaults |= {key: NOT_GIVEN if value is None else value for key, value in settings.items()}
    needed = {key: value for key, value in given.items() if key not in defaults or defaults[key] != value}
    if len(known) == len(run_keys):
        needed = _without_what_follows(needed)
    return ["fedbn-sim", *(word for key, value in needed.items() for word in (f"--{key}", as_text(value)))]


def _without_what_follows(given: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is chosen by itself as it was, where nothing is given for it.

    The number of natural clients stays: no data are read for this.
    """
    found = dict(given)
    counted = str(given.get("partition", "")).startswith("natural") and "dataset" in given
    auto = {key for key, field in RUN_KEYS.items() if field.default == NOT_GIVEN}
    try:
        wanted = run_config(found)
        for key in [key for key in found if key in auto and not (counted and key == "num-clients")]:
            fewer = {other: value for other, value in found.items() if other != key}
            if run_config(fewer) == wanted:
                found = fewer
    except UserError:  # written by another version, say
        pass
    return found


def uses_session_objects(config: Mapping[str, Any]) -> bool:
    """Return whether a run was given a Python object, which no command can name."""
    return any(
        is_session_name(str(config.get(key)))
        for key in ("strategy", "client", "objective", "loss", "problem", "model", "dataset")
    )
