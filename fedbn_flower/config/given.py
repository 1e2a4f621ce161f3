"""The given values of a run by key: validated for any key, with absolute paths, and without aliases."""

import re
import shlex
from collections.abc import Mapping
from typing import Any

from flwr.app import UserConfigValue

from ..core.errors import UserError, check_plain, not_allowed
from ..names import name_now
from .keys import ALIASES, RUN_KEYS
from .keys.paths import with_absolute_paths
from .named_algorithms import NOT_GIVEN, names_code

PATHS = frozenset({"availability", "cache-dir", "devices", "init", "resume", "run-dir"})
"""Keys whose values may be paths, in addition to those that `names_code`."""
LONGEST_NAME, LONGEST_PATH = 255, 2048
"""Bytes; Linux has up to 4095 in all, with the current folder and what is below this one."""


def given_by_key(values: Mapping[str, UserConfigValue]) -> dict[str, Any]:
    """Return the given values by key, including the text ``settings``, without settings that are ``auto``.

    Raises
    ------
    UserError
        For a value that no key can have, and for a key or a setting given twice.
    """
    for key, value in values.items():
        check_given(key, value)
    given: dict[str, Any] = {key: name_now(key, value) for key, value in with_absolute_paths(values).items()}
    text = str(given.pop("settings", ""))
    for alias, key in ALIASES.items():
        if (value := given.pop(alias, NOT_GIVEN)) != NOT_GIVEN:
            given[key] = value
    given = {key: value for key, value in given.items() if key in RUN_KEYS or value != NOT_GIVEN}
    for key, value in _parsed(text).items():
        if key in RUN_KEYS:
            raise not_allowed("settings", text, f"settings of algorithms; {key} is a key of the run")
        if key in given:
            raise UserError(f"{key}: given twice, the second time in settings")
        if value != NOT_GIVEN:
            given[key] = value
    return given


def check_given(key: str, value: object) -> None:
    """Refuse a value that no key can have: those of `check_plain`, and names too long for a file.

    Raises
    ------
    UserError
        For such a value.
    """
    check_plain(key, value)
    if not isinstance(value, str) or not (names_code(key) or key in PATHS):
        return
    text = value.encode(errors="surrogatepass")
    if len(text) > LONGEST_PATH or max(map(len, re.split(b"[/,:+]", text))) > LONGEST_NAME:
        wanted = f"names of at most {LONGEST_NAME} bytes, as files have, and {LONGEST_PATH} in all"
        raise not_allowed(key, value, wanted)


def _parsed(text: str) -> dict[str, str]:
    """``KEY=VALUE ...`` as a shell would split it."""
    try:
        pairs = [word.split("=", 1) for word in shlex.split(text)]
        parsed = {key: value for key, value in pairs if key}
    except ValueError:
        parsed, pairs = {}, [[]]
    if len(parsed) < len(pairs):
        raise not_allowed("settings", text, "KEY=VALUE ..., no key twice")
    return parsed
