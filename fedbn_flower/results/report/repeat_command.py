"""The command that repeats a run."""

import shlex
from collections.abc import Mapping
from typing import Any

from ...config.help import as_text
from ...config.keys import OWN_KEYS
from ...config.selection import NOT_GIVEN, named, resolve
from ...config.trust import code_in
from ...core.errors import UserError
from ...core.session_objects import is_own
from ..manifest import NOT_KEYS

PLACES = ("run-dir", "resume")
"""Keys that say where a run is, not what it does."""


def command_of(config: Mapping[str, Any]) -> list[str]:
    """The words of a run's command line by its ``config.json``, quoted for a shell: what is not a default,
    and the algorithms in any case; of code of one's own, which is not run for it, every setting. An object
    of one's own has a name in it that no command line knows."""
    given = {key: value for key, value in config.items() if key not in (*NOT_KEYS, *PLACES)}
    defaults: dict[str, Any] = {key: field.default for key, field in OWN_KEYS.items()}
    try:
        own = {key: value for key, value in given.items() if key in OWN_KEYS}
        known = {key: value for key, value in own.items() if not code_in(key, str(value))}
        algorithms = [found for found in named(known) if found.kind in known]
        settings = resolve(algorithms, own)
    except UserError:  # an algorithm that is not at hand now
        settings = {}
    defaults |= {key: NOT_GIVEN if value is None else value for key, value in settings.items()}
    always = ("strategy", "client", "objective")
    words = [
        word
        for key, value in given.items()
        if key in always or key not in defaults or defaults[key] != value
        for word in (f"--{key}", as_text(value))
    ]
    return [shlex.quote(word) for word in ("fedbn-sim", *words)]


def names_objects(config: Mapping[str, Any]) -> bool:
    """Whether a run was given an object of one's own, which has no name elsewhere."""
    return any(is_own(str(config.get(key))) for key in ("strategy", "client", "objective", "loss", "model"))
