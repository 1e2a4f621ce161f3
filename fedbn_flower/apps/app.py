"""A Flower app: found as Flower finds it, or given as objects."""

import importlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from click import ClickException
from flwr.app import UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from ..core.errors import UserError, not_allowed
from ..core.private import (
    flatten_dict,
    fuse_dicts,
    get_project_config,
    load_app,
    parse_config_args,
    validate_config,
)
from ..core.process_cache import clear_process_caches, process_cache
from ..core.text import hint

PROJECT = "pyproject.toml"
INSTALLED = ("site-packages", "dist-packages")
MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
QUOTED = r"(?:'[^']*'|\"[^\"]*\"|\S)"
PAIR = r"[^\s=]+=(?:'[^']*'|\"[^\"]*\"|[^\s'\"]\S*)"
NUMBER = "a number"
NODES, FLOWERS_NODES, MOST_NODES = "num-supernodes", 2, 1_000_000
IN_WORDS = {bool: "true or false", int: NUMBER, float: NUMBER, str: "text"}


@dataclass(frozen=True)
class Component:
    """A ServerApp or a ClientApp: an object, or where it is found.

    Parameters
    ----------
    kind : type
        ServerApp or ClientApp.
    reference : str
        ``module:attribute``; empty with an object.
    folder : str
        The app's folder, which is put on ``sys.path``.
    given : object, optional
        The object.
    """

    kind: type
    reference: str = ""
    folder: str = ""
    given: Any = None

    def load(self) -> Any:
        """Return the object, imported if need be.

        Raises
        ------
        UserError
            When there is no such object, or it is of another kind.
        """
        with _syntax_errors_in_a_line():
            found = self.given if self.given is not None else _loaded(self.reference, self.folder)
        if not isinstance(found, self.kind):
            name = f"{self.kind.__name__.lower()} = {self.reference!r}"
            raise UserError(f"app: {name} is of type {type(found).__name__}; expected {self.kind.__name__}")
        return found


@contextmanager
def _syntax_errors_in_a_line() -> Iterator[None]:
    """Tell a syntax error in a file of the app by its place; those of code in a text are the app's own."""
    try:
        yield
    except SyntaxError as error:
        if not os.path.isfile(error.filename or ""):
            raise
        line = (error.text or "").strip()
        raise UserError(f"app: {error.filename!r}, line {error.lineno}: {error.msg}: {line}") from error


@process_cache(maxsize=4)
def _loaded(reference: str, folder: str) -> object:
    """Import a component, once a process and run; its folder is the first on the path."""
    if sys.path[:1] != [folder]:  # in a worker, which may have served another app
        forget_package(reference)
        sys.path.insert(0, folder)
    return load_app(reference, _NoComponent, folder)


class _NoComponent(UserError):
    """Flower's message, without its help on further lines."""

    def __init__(self, message: str) -> None:
        super().__init__(f"app: {message.splitlines()[0]}")


@dataclass(frozen=True)
class FlowerApp:
    """An app that can be run.

    Parameters
    ----------
    server, client : Component
        Its two sides.
    run_config : UserConfig
        The run configuration, overrides included.
    name, version : str
        ``publisher/name`` and version.
    folder : Path, optional
        Where it is; None for objects.
    overrides : UserConfig
        What was given over the app's own configuration.
    """

    server: Component
    client: Component
    run_config: UserConfig
    name: str = "app"
    version: str = ""
    folder: Path | None = None
    overrides: UserConfig = field(default_factory=dict)
    notes: Sequence[str] = ()
    """What is odd about the overrides, in a line each."""
    num_supernodes: int = FLOWERS_NODES
    """Where none are given."""
    nodes_from: str = "Flower's default"
    """Where their number is from."""


def app_in(folder: Path, overrides: Sequence[str] | Mapping[str, Any] = ()) -> FlowerApp:
    """Return the app in a folder, unloaded.

    Parameters
    ----------
    folder : Path
        Has the ``pyproject.toml``.
    overrides : Sequence[str] or Mapping
        As ``flwr run --run-config`` takes them, ``"key=value key=value"`` or a TOML file; or by key.

    Raises
    ------
    UserError
        When there is no such app, or a key or value is not allowed.
    """
    folder = folder.expanduser().resolve()
    config = _project(folder)
    app = config["tool"]["flwr"]["app"]
    components = app["components"]
    if "agentapp" in components:
        raise UserError("app: an agentapp needs a SuperLink; expected serverapp and clientapp")
    default = _flat(app.get("config", {}), f"[tool.flwr.app.config] of {str(folder / PROJECT)!r}")
    given = _overrides(overrides)
    if unknown := sorted(given.keys() - default.keys()):
        choices = f"one of {', '.join(sorted(default))}" if default else "none: the app has no configuration"
        raise UserError(
            f"run-config: unknown key {unknown[0]!r}{hint(unknown[0], default)}; expected {choices}"
        )
    server = Component(ServerApp, components["serverapp"], str(folder))
    client = Component(ClientApp, components["clientapp"], str(folder))
    name = f"{app['publisher']}/{config['project']['name']}"
    version = str(config["project"]["version"])
    fused = fuse_dicts(default, given)
    notes = _other_kinds(default, given)
    nodes = _nodes_of(config["tool"]["flwr"])
    return FlowerApp(server, client, fused, name, version, folder, given, notes, *nodes)


def app_of(server: ServerApp, client: ClientApp, run_config: Mapping[str, Any] | None = None) -> FlowerApp:
    """Return the app that consists of two objects.

    Raises
    ------
    UserError
        When a value of the run configuration is not allowed.
    """
    config = _overrides(run_config or {})
    return FlowerApp(Component(ServerApp, given=server), Component(ClientApp, given=client), config)


def checked_nodes(key: str, number: Any) -> int:
    """Return a number of nodes.

    Raises
    ------
    UserError
        When it is none.
    """
    if type(number) is not int or not 1 <= number <= MOST_NODES:
        raise not_allowed(key, number, f"a whole number from 1 to {MOST_NODES}")
    return number


def _nodes_of(flwr: Mapping[str, Any]) -> tuple[int, str]:
    """Return the number of nodes of a project's default federation, else Flower's, and where it is from."""
    federations = _at(flwr, "federations")
    found = {name: _at(federations, name, "options", NODES) for name in federations or ()}
    numbers = {name: number for name, number in found.items() if number is not None}
    if (default := str(_at(federations, "default"))) in numbers:
        place = f"options.{NODES} of [tool.flwr.federations.{default}] in {PROJECT}"
        return checked_nodes(place, numbers[default]), place
    others = ", ".join(f"{number} in {name}" for name, number in numbers.items())
    of_no_default = f"; {PROJECT} has {others}, which is not the default federation" if others else ""
    return FLOWERS_NODES, f"Flower's default{of_no_default}"


def _at(table: Any, *keys: str) -> Any:
    """Return what is at the end of a path of tables; None where there is nothing."""
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return table


@contextmanager
def importable(folder: Path | None, *components: str) -> Iterator[None]:
    """Have an app's modules imported from its folder, and forgotten afterwards.

    Another app may have modules of the same names, and the same app may be edited before it is run again.
    Modules from elsewhere that have the names of its components' packages come back at the end.
    """
    if folder is None:
        yield
        return
    path = list(sys.path)
    clear_process_caches()
    forget_modules(folder, list(sys.modules))
    aside = {}
    for reference in components:
        aside.update(forget_package(reference))
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    before = set(sys.modules)
    try:
        yield
    finally:
        clear_process_caches()
        forget_modules(folder, sys.modules.keys() - before)
        sys.modules.update(aside)
        sys.path[:] = path


def forget_package(component: str) -> dict[str, ModuleType]:
    """Forget the package that a component is in, wherever it was imported from; return its modules."""
    package = component.partition(":")[0].partition(".")[0]
    found = {name: one for name, one in sys.modules.items() if name.partition(".")[0] == package}
    for name in found:
        del sys.modules[name]
    return found


def forget_modules(folder: Path, names: Iterable[str]) -> None:
    """Forget those of these modules that were imported from a folder, installed ones excepted."""
    beginning = str(folder) + os.sep
    for name in names:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith(beginning) and not any(part in file for part in INSTALLED) and name != "__main__":
            del sys.modules[name]


def _project(folder: Path) -> dict[str, Any]:
    """Return the checked ``pyproject.toml`` of an app."""
    if not folder.is_dir():
        raise not_allowed("app", str(folder), f"the folder of a Flower app, with a {PROJECT}")
    place = repr(str(folder / PROJECT))
    try:
        config = get_project_config(folder)
        valid, errors, _ = validate_config(config, check_module=False)
    except FileNotFoundError:
        raise not_allowed("app", str(folder), f"a folder with a {PROJECT}") from None
    except (ValueError, OSError, TypeError, AttributeError) as error:  # also of TOML; of other types in it
        raise UserError(f"app: {place}: {_in_a_line(error)}") from error
    references = list(config["tool"]["flwr"]["app"]["components"].values()) if valid else []
    if odd := [one for one in references if not MODULE.fullmatch(one.partition(":")[0])]:
        raise UserError(f"app: {place}: {odd[0]!r} is not allowed; expected 'module:attribute'")
    if valid:
        valid, errors = _found_in(folder, config, references, place)
    if not valid:
        raise UserError(f"app: {place}: {_first_line(errors[0])}")
    return config


def _found_in(
    folder: Path, config: dict[str, Any], references: Sequence[str], place: str
) -> tuple[bool, list[str]]:
    """Return whether the components are there, and what is wrong; what their packages raise is raised."""
    try:
        # Flower imports the packages that components are in.
        with importable(folder, *references), _syntax_errors_in_a_line():
            valid, errors, _ = validate_config(config, project_dir=folder)
    except ModuleNotFoundError as error:
        if not any(one.partition(":")[0].startswith(error.name or ":") for one in references):
            raise  # the app imports it
        raise UserError(f"app: {place}: no module {error.name!r} in {str(folder)!r}") from error
    return valid, errors


def _in_a_line(error: Exception) -> str:
    return " ".join(word for line in str(error).splitlines() for word in line.split() if word != "-")


def _first_line(text: str) -> str:
    return next(filter(None, text.splitlines()), "")


def _overrides(given: Sequence[str] | Mapping[str, Any]) -> UserConfig:
    """Return overrides by key."""
    if isinstance(given, Mapping):
        return _flat(dict(given), "run-config")
    if not isinstance(given, Sequence) or not all(isinstance(text, str) for text in given):
        raise not_allowed("run-config", given, "values by key, or 'key=value key=value'")
    for text in filter(None, given):
        _check_pairs(text)
    try:
        return dict(parse_config_args(list(given)))
    except Exception as error:  # a ClickException, a ValueError, an OSError of a TOML file
        words = _in_a_line(Exception(getattr(error, "message", str(error))))
        raise UserError(f"run-config: {words}") from error


def _check_pairs(text: str) -> None:
    """Refuse words that are no ``key=value``, or whose value cannot be read, by name.

    Flower would leave the first out without a word, and not say of the others which they are.
    """
    if text.endswith(".toml"):
        return
    keys: set[str] = set()
    for word in re.findall(rf"{QUOTED}+", text):
        if not re.fullmatch(PAIR, word):
            raise not_allowed("run-config", word, 'key=value key="text", separated by spaces')
        key, _, value = word.partition("=")
        if key in keys:
            raise not_allowed("run-config", word, f"{key} once")
        keys.add(key)
        try:
            parse_config_args([word])
        except ClickException:
            expected = f"a number, true, false, or text in quotes, {key}='{value}'; pairs separated by spaces"
            raise not_allowed("run-config", word, expected) from None
        except ValueError:  # a list or a date, which Flower's own message names
            continue


def _flat(config: dict[str, Any], what: str) -> UserConfig:
    if odd := [key for key in config if not isinstance(key, str)]:
        raise not_allowed(what, odd[0], "keys that are text")
    try:
        return flatten_dict(config)
    except ValueError as error:
        raise UserError(f"{what}: {_in_a_line(error)}") from error


def _other_kinds(default: UserConfig, given: UserConfig) -> list[str]:
    """Return a line for each override of another kind than the app's own value; Flower takes them."""
    return [
        f"run-config: {key}={value!r} is {IN_WORDS[type(value)]}, the app's own {default[key]!r} is "
        f"{IN_WORDS[type(default[key])]}"
        for key, value in given.items()
        if IN_WORDS[type(value)] != IN_WORDS[type(default[key])]
    ]
