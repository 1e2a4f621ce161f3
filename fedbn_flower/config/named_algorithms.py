"""The algorithms that a run names: their settings, and what they need of each other.

Settings are checked here.
"""

from collections.abc import Iterable, Mapping, Sequence
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
    START_LOSS,
    UPDATE_BOUND,
    UPDATE_STEP,
)
from ..core.text import hint
from ..data.sources import is_function
from ..extensions import EXTENSIONS, Extension, ServerHook, built_in
from ..models.named import MODEL, NORM
from ..names import (
    CLIENT,
    COMPRESS,
    DATASET,
    LOSS,
    METRIC,
    OBJECTIVE,
    PROBLEM,
    SELECTION,
    STRATEGY,
    Registry,
    absolute,
    name_now,
    parts,
    short,
)
from .gone import GONE, refuse_gone
from .keys import ALIASES, RUN_KEYS
from .metric_names import absolute_metrics

EXTENSION = Registry("extension", EXTENSIONS, Extension)
NONE = "none"


def extension_names(text: str) -> list[str]:
    """Return the names in a comma-separated text; [] for ``none``."""
    return [] if text == NONE else [name.strip() for name in text.split(",")]


def extension_classes(
    config: Mapping[str, Any], named: Iterable[str] | None = None
) -> dict[str, type[ServerHook]]:
    """Return the extensions of a run, from the wire inwards, by their name in messages and files.

    Parameters
    ----------
    config : Mapping[str, Any]
        The run's configuration by key.
    named : Iterable[str], optional
        Which of the named ones; by default all.

    Raises
    ------
    UserError
        When one cannot be found, or two have the same name.
    """
    found = {cls.__name__.lower(): cls for cls in built_in(config)}
    for name in extension_names(config[EXTENSION.key]) if named is None else named:
        if short(name) in found:
            once = f"each name once, not {short(name)!r} twice"
            raise not_allowed(EXTENSION.key, config[EXTENSION.key], once)
        found[short(name)] = EXTENSION.find(name)
    return dict(sorted(found.items(), key=lambda item: item[1].place))


def absolute_extensions(text: str) -> str:
    """Return the names with absolute paths, for a process in another folder."""
    return ",".join(absolute(name, EXTENSION.names) for name in extension_names(text)) or NONE


REGISTRIES: tuple[Registry[Any], ...] = (STRATEGY, CLIENT, OBJECTIVE, LOSS)
NAMED: dict[str, Mapping[str, Any]] = {
    registry.key: registry.names for registry in (*REGISTRIES, PROBLEM, MODEL)
}
"""The built-in algorithms by name, for every key that can also name a user's code."""
WITH_ARGUMENT: dict[str, Registry[Any]] = {registry.key: registry for registry in (SELECTION, COMPRESS, NORM)}
"""What each of these keys names."""
NOT_GIVEN = "auto"
PLAIN = "plain"
MESSAGE_KEYS = {CHECKPOINT_ROUND, EVAL_SPLITS, RUN, SERVER_ROUND, START_LOSS, UPDATE_BOUND, UPDATE_STEP}
COMMANDS = {"help", "list", "sweep", "experiment", "search", "trials", "dry-run", "trust-code", "version"}

Setting = UserConfigValue | None


@dataclass(frozen=True)
class Named:
    """An algorithm with the name given in the configuration."""

    kind: str
    name: str
    cls: type
    built_in: bool
    members: tuple["Named", ...] = ()
    """For a union of several clients, its parts."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


def names_code(key: str) -> bool:
    """Whether a value of a key may name a user's code."""
    return key in NAMED or key in WITH_ARGUMENT or key in (METRIC.key, DATASET.key, EXTENSION.key)


def with_full_paths(key: str, text: str) -> str:
    """Return a key's value with absolute paths in ``FILE.py:NAME``, for a process in another folder."""
    if key == METRIC.key:
        return absolute_metrics(text)
    if key == EXTENSION.key:
        return absolute_extensions(text)
    if key == DATASET.key:
        return absolute(text) if is_function(text) else text
    if key in WITH_ARGUMENT:
        return absolute(text) if WITH_ARGUMENT[key].is_code(text) else text
    return absolute(text, NAMED[key]) if key in NAMED else text


def named(names: Mapping[str, Any]) -> tuple[Named, ...]:
    """The strategy, the client, the objective, the loss and the extensions of a configuration.

    Raises
    ------
    UserError
        When one cannot be loaded, or declares invalid settings.
    """
    found: list[Named] = []
    for registry in REGISTRIES:
        name = str(names.get(registry.key, RUN_KEYS[registry.key].default))
        if registry is OBJECTIVE and name == NOT_GIVEN:
            name = objective_of(found[0].cls)
        found.append(_named(registry.key, name, registry.find(name)))
    text = str(names.get(EXTENSION.key, RUN_KEYS[EXTENSION.key].default))
    for name in extension_names(text):
        found.append(extension := Named(EXTENSION.key, name, EXTENSION.find(name), name in EXTENSION.names))
        if found.count(extension) > 1:
            raise not_allowed(EXTENSION.key, text, "each extension once")
    for algorithm in found:
        _check_declaration(algorithm)
    return tuple(found)


def objective_of(strategy: type) -> str:
    """The built-in objective that belongs to a strategy, if there is one; else plain SGD."""
    wanted = getattr(strategy, "requires", {}).get(OBJECTIVE.key, ())
    one = name_now(OBJECTIVE.key, str(next(iter(wanted)))) if len(wanted) == 1 else ""
    return one if one in OBJECTIVE.names else PLAIN


def _named(kind: str, name: str, cls: type) -> Named:
    built_in = next(r.names for r in REGISTRIES if r.key == kind)
    several = parts(name) if kind == CLIENT.key else []
    pairs = zip(several, cls.__bases__, strict=True) if len(several) > 1 else ()
    return Named(kind, name, cls, name in built_in, tuple(_named(kind, one, base) for one, base in pairs))


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
    """The attribute of every setting, by its flag; settings declared with ``exclude`` have no flag."""
    return {flag(name, field): name for name, field in declared(cls).items() if not field.exclude}


@lru_cache(maxsize=256)
def settings_of(cls: type) -> Mapping[str, FieldInfo]:
    """A class's settings by flag, except those that are also keys of the run."""
    fields = model_of(cls).model_fields if declared(cls) else {}
    return {key: fields[name.strip("_")] for key, name in flags(cls).items() if key not in RUN_KEYS}


def resolve(algorithms: Iterable[Named], given: Mapping[str, Any]) -> dict[str, Setting]:
    """Every setting of the algorithms by flag: given values, validated, and defaults for the others.

    Parameters
    ----------
    algorithms : Iterable[Named]
        Those of a run.
    given : Mapping[str, object]
        The run's keys and settings.

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


def check_used(given: Mapping[str, Any], runs: Sequence[Iterable[Named]]) -> None:
    """Refuse keys that no run knows.

    Raises
    ------
    UserError
        For the first one; the message names the key that replaced it, the algorithms that have it, or the
        most similar key.
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


def built_in_users(key: str) -> list[str]:
    """The built-in algorithms that have this setting."""
    kinds = (*REGISTRIES, EXTENSION)
    users = {name for r in kinds for name, cls in r.names.items() if key in settings_of(cls)}
    return sorted(users)


def built_in_settings() -> list[str]:
    """The settings of all built-in algorithms, in their order."""
    kinds = (*REGISTRIES, EXTENSION)
    return list(dict.fromkeys(k for r in kinds for cls in r.names.values() for k in settings_of(cls)))


def keys_for_flower() -> dict[str, object]:
    """Every key that Flower is to let through, with its default; also aliases and keys that are gone."""
    settings = dict.fromkeys([*built_in_settings(), *ALIASES, *GONE], NOT_GIVEN)
    return {key: field.default for key, field in RUN_KEYS.items()} | settings
