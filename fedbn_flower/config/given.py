"""The given values of a run by key: validated for any key, with absolute paths, and without aliases."""

import re
import shlex
from collections.abc import Mapping
from typing import Any

from flwr.app import UserConfigValue

from fedbn_flower.strategies import PseudoGradientStrategy
from fedbn_flower.strategies.signature import FLOWERS

from ..core.errors import UserError, check_plain, not_allowed
from ..core.files import absolute
from ..core.ground.settings import declared
from ..extensions.devices import absolute_devices
from ..names import name_now
from .keys import ALIASES, RUN_KEYS
from .keys.general import absolute_availability
from .named_algorithms import NOT_GIVEN, flags, names_code

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


ABSOLUTE = {"availability": absolute_availability, "devices": absolute_devices, "init": absolute}


def with_absolute_paths(values: Mapping[str, UserConfigValue]) -> dict[str, UserConfigValue]:
    """Return the values of a run with absolute paths, as the current folder may change.

    Raises
    ------
    UserError
        For a value that is neither a path nor another allowed value of the key.
    """
    given = {key: str(v) for key, v in values.items() if key in ABSOLUTE and v != "" and type(v) is not bool}
    return {**values, **{key: ABSOLUTE[key](value) for key, value in given.items()}}


SHARES = {"fraction_train": "fraction-train", "fraction_evaluate": "fraction-evaluate"}
WEIGHTINGS = {"num-examples": "num-examples", None: "uniform"}


def given_settings(strategy: PseudoGradientStrategy) -> dict[str, UserConfigValue]:
    """Return the arguments of an instance that are not defaults, by the run's keys and settings' flags.

    Raises
    ------
    UserError
        When its class cannot be constructed from settings alone, or an argument has no key.
    """
    cls = type(strategy)
    fields = declared(cls)
    values: dict[str, Any] = {name: getattr(strategy, name) for name in fields}
    try:
        plain: Any = cls(**{name.strip("_"): value for name, value in values.items()})
    except TypeError as error:
        raise UserError(f"strategy: {cls.__name__} cannot be made from settings alone ({error})") from error
    given: dict[str, Any] = {}
    keys = {name: key for key, name in flags(cls).items()}
    defaults = {name: getattr(plain, name) for name in (argument.name for argument in FLOWERS)}
    defaults |= {name: field.default for name, field in fields.items()}
    for name, default in defaults.items():
        value = getattr(strategy, name)
        if value == default:
            continue
        if name in keys:
            given[keys[name]] = value
        elif name in SHARES:
            given[SHARES[name]] = value
        elif name == "weighted_by_key" and value in WEIGHTINGS:
            given["weighting"] = WEIGHTINGS[value]
        else:
            raise UserError(f"strategy: a run has no key for {name}={value!r}; a subclass may have it fixed")
    return given
