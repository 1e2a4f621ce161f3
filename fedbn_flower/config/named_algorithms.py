"""The algorithms that a run names: their settings, and what they need of each other."""

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from flwr.app import UserConfigValue
from pydantic import ValidationError
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo

from ..core.errors import UserError, check_plain, not_allowed
from ..core.ground.settings import allowed, declared, flag, model_of
from ..core.ground.wire import (
    CHECKPOINT_ROUND,
    EVAL_SPLITS,
    RUN,
    SERVER_ROUND,
    UPDATE_BOUND,
    UPDATE_STEP,
)
from ..core.suggestions import hint
from ..data.readers.own_function import is_function
from ..names import CLIENT, DATASET, LOSS, METRIC, MODEL, OBJECTIVE, PROBLEM, STRATEGY
from ..names.client_unions import parts
from ..names.registry import Registry, absolute
from ..names.with_argument import WITH_ARGUMENT, absolute_name
from .extension_names import EXTENSION, absolute_extensions, extension_names
from .gone import GONE, refuse_gone
from .keys import ALIASES, RUN_KEYS
from .metric_names import absolute_metrics

REGISTRIES: tuple[Registry[Any], ...] = (STRATEGY, CLIENT, OBJECTIVE, LOSS)
NAMED: dict[str, Mapping[str, Any]] = {
    registry.key: registry.names for registry in (*REGISTRIES, PROBLEM, MODEL)
}
"""The built-in names of every key that can also name a user's code."""
NOT_GIVEN = "auto"
PATHS = frozenset({"availability", "cache-dir", "devices", "init", "resume", "run-dir"})
"""Keys whose values may be paths, beside those that `names_code`."""
LONGEST_NAME, LONGEST_PATH = 255, 2048
"""Bytes; Linux has up to 4095 in all, with the current folder and what is below this one."""
MESSAGE_KEYS = {CHECKPOINT_ROUND, EVAL_SPLITS, RUN, SERVER_ROUND, UPDATE_BOUND, UPDATE_STEP}
COMMANDS = {"help", "list", "sweep", "experiment", "search", "trials", "dry-run", "trust-code", "version"}

Setting = UserConfigValue | None


@dataclass(frozen=True)
class Named:
    """An algorithm and the name that the configuration gives."""

    kind: str
    name: str
    cls: type
    built_in: bool

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


def names_code(key: str) -> bool:
    """Whether a value of a key may name a user's code."""
    return key in NAMED or key in WITH_ARGUMENT or key in (METRIC.key, DATASET.key, EXTENSION.key)


def check_given(key: str, value: object) -> None:
    """Refuse what no key can mean: `check_plain`'s, and names that are too long for a file.

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


def with_full_paths(key: str, text: str) -> str:
    """Return a key's value for a process in another folder: paths in ``FILE.py:NAME`` are absolute."""
    if key == METRIC.key:
        return absolute_metrics(text)
    if key == EXTENSION.key:
        return absolute_extensions(text)
    if key == DATASET.key:
        return absolute(text) if is_function(text) else text
    if key in WITH_ARGUMENT:
        return absolute_name(key, text)
    return absolute(text, NAMED[key]) if key in NAMED else text


def named(names: Mapping[str, Any]) -> tuple[Named, ...]:
    """The strategy, the client, the objective, the loss and the extensions of a configuration.

    Raises
    ------
    UserError
        When one cannot be had, or declares settings that cannot be.
    """
    found = []
    for registry in REGISTRIES:
        name = str(names.get(registry.key, RUN_KEYS[registry.key].default))
        found.append(_named(registry.key, name, registry.find(name)))
    text = str(names.get(EXTENSION.key, RUN_KEYS[EXTENSION.key].default))
    for name in extension_names(text):
        found.append(extension := Named(EXTENSION.key, name, EXTENSION.find(name), name in EXTENSION.names))
        if found.count(extension) > 1:
            raise not_allowed(EXTENSION.key, text, "each extension once")
    for algorithm in found:
        _check_declaration(algorithm)
    return tuple(found)


def _named(kind: str, name: str, cls: type) -> Named:
    built_in = next(r.names for r in REGISTRIES if r.key == kind)
    return Named(kind, name, cls, name in built_in)


def _check_declaration(algorithm: Named) -> None:
    try:
        fields = settings_of(algorithm.cls)
    except KeyError as error:
        raise UserError(f"{algorithm}: its setting {error} has no type") from error
    except (NameError, TypeError, PydanticUserError) as error:
        problem = str(error).splitlines()[0]
        raise UserError(f"{algorithm}: its settings cannot be read: {problem}") from error
    for key, field in fields.items():
        if key in MESSAGE_KEYS | ALIASES.keys() | GONE.keys() | COMMANDS:
            raise UserError(f"{algorithm}: its setting {key!r} must have another name, which is in use")
        if not field.is_required() and not isinstance(field.default, bool | int | float | str | None):
            wrong = f"{algorithm}: its setting {key!r} is neither text, a number, true or false"
            raise UserError(f"{wrong}: {field.default!r}")


@lru_cache(maxsize=256)
def flags(cls: type) -> Mapping[str, str]:
    """The attribute of every setting by its flag; those declared with ``exclude`` have none."""
    return {flag(name, field): name for name, field in declared(cls).items() if not field.exclude}


@lru_cache(maxsize=256)
def settings_of(cls: type) -> Mapping[str, FieldInfo]:
    """A class's settings by flag, but for those that the run has a key for."""
    fields = model_of(cls).model_fields if declared(cls) else {}
    return {key: fields[name.strip("_")] for key, name in flags(cls).items() if key not in RUN_KEYS}


def built_in_users(key: str) -> list[str]:
    """The built-in algorithms that have this setting."""
    kinds = (*REGISTRIES, EXTENSION)
    users = {name for r in kinds for name, cls in r.names.items() if key in settings_of(cls)}
    return sorted(users)


def built_in_settings() -> list[str]:
    """The settings of all built-in algorithms, in their order."""
    kinds = (*REGISTRIES, EXTENSION)
    return list(dict.fromkeys(k for r in kinds for cls in r.names.values() for k in settings_of(cls)))


def check_used(given: Mapping[str, Any], runs: Sequence[Iterable[Named]]) -> None:
    """Refuse keys that no run knows.

    Raises
    ------
    UserError
        For the first one; the message names the key in its place, the algorithms that have it, or the
        nearest key.
    """
    algorithms = list(dict.fromkeys(algorithm for run in runs for algorithm in run))
    used = {key for algorithm in algorithms for key in settings_of(algorithm.cls)}
    for key, value in given.items():
        if key in used or key in RUN_KEYS:
            continue
        refuse_gone(key, [value])
        if users := built_in_users(key):
            *others, last = (str(a) for r in REGISTRIES for a in algorithms if a.kind == r.key)
            named = f"{', '.join(others)} or {last}"
            raise UserError(f"{key}: {value} is not used by {named}; it is a setting of {', '.join(users)}")
        near = hint(key, [*RUN_KEYS, *sorted({*used, *built_in_settings()})])
        raise UserError(f"configuration: unknown name {key!r}{near}; see --help")


def resolve(algorithms: Iterable[Named], given: Mapping[str, Any]) -> dict[str, Setting]:
    """Every setting of the algorithms by flag: what is given, checked, and the other defaults.

    Parameters
    ----------
    algorithms : Iterable[Named]
        Those of a run.
    given : Mapping[str, object]
        Keys of the run, and settings.

    Raises
    ------
    UserError
        For a value that is not allowed.
    """
    resolved: dict[str, Setting] = {}
    for algorithm in algorithms:
        settings = settings_of(algorithm.cls)
        if not settings:
            continue
        model, known = model_of(algorithm.cls), flags(algorithm.cls)
        try:
            values = model.model_validate({key: given[key] for key in known if key in given}, by_name=False)
        except ValidationError as error:
            key = str(error.errors()[0]["loc"][0])
            words = allowed(model.model_fields[known[key].strip("_")])
            if key not in given:
                raise UserError(f"{key}: missing; {algorithm} needs {words}") from None
            raise not_allowed(key, given[key], words) from None
        for key in settings:
            value = getattr(values, known[key].strip("_"))
            check_plain(key, value)
            if resolved.setdefault(key, value) != value:
                defaults = f"{resolved[key]!r} or {value!r}"
                raise UserError(
                    f"{key}: missing; {algorithm} and another have different defaults ({defaults})"
                )
    return resolved


def check_requirements(algorithms: Sequence[Named], values: Mapping[str, Any]) -> None:
    """Refuse a configuration that an algorithm does not go with.

    Raises
    ------
    UserError
        For the first key that is not what an algorithm requires.
    """
    partners = {algorithm.kind: algorithm for algorithm in algorithms}
    for algorithm in algorithms:
        required: Mapping[str, Collection[object]] = getattr(algorithm.cls, "requires", {})
        for key, wanted in required.items():
            if key not in values:
                raise UserError(f"{algorithm}: it requires {key!r}, which is no key of this run")
            value = values[key]
            if key in partners:
                met = any(_has_name(partners[key], str(name)) for name in wanted)
            else:
                met = value in wanted
            if not met:
                words = " or ".join(sorted(map(repr, wanted)))
                raise not_allowed(key, value, f"{words}, which goes with {algorithm}")


def _has_name(algorithm: Named, name: str) -> bool:
    """By its name as given, or its class's; one from a file also by those of the classes it extends; several
    joined by what one of them is called."""
    if algorithm.kind == CLIENT.key and len(several := parts(algorithm.name)) > 1:
        classes = algorithm.cls.__bases__
        pairs = zip(several, classes, strict=True)
        return any(_has_name(_named(algorithm.kind, one, cls), name) for one, cls in pairs)
    if name in (algorithm.name, algorithm.cls.__name__) or algorithm.name.endswith(f"/{name}"):
        return True
    if algorithm.built_in:
        return False
    registered = next(r.names for r in REGISTRIES if r.key == algorithm.kind)
    bases = algorithm.cls.__mro__
    return name in {base.__name__ for base in bases} or registered.get(name) in bases


def given_by_key(values: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, by key: settings out of the text ``settings``, those that are ``auto`` left out."""
    given = dict(values)
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
