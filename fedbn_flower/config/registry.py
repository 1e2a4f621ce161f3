"""Algorithms by name: a built-in one, ``FILE.py:NAME``, ``package.module:NAME``, or an object
of this session;
several clients joined by ``+``."""

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar

from fedbn_flower.clients import (
    CLIENTS,
    LOSSES,
    METRICS,
    OBJECTIVES,
    PROBLEMS,
    FedAvgClient,
    Loss,
    Metric,
    Objective,
    Problem,
)
from fedbn_flower.clients.modules.surroundings import kept_surroundings
from fedbn_flower.clients.problems.metrics.from_torchmetrics import is_torchmetric
from fedbn_flower.clients.returned import WrongResult
from fedbn_flower.strategies import CODECS, SELECTIONS, STRATEGIES, Codec, PseudoGradientStrategy, Selection

from ..core.errors import RunFailed, UserError, not_allowed, unknown_name
from ..core.files import path_of
from ..core.process_cache import process_cache
from ..core.session_objects import MARK, is_session_name, session_objects
from ..extensions import EXTENSIONS, Extension
from ..models import MODELS
from ..models.libraries import FORM as OF_LIBRARY
from ..models.libraries import is_of_library, of_library
from .client_unions import JOIN, parts, union

APP = Path(__file__).resolve().parents[2]
"""The folder that holds this package: the checkout, or where Flower has unpacked the app."""

FORMS = "FILE.py:NAME or package.module:NAME"

T = TypeVar("T")


@dataclass(frozen=True)
class Registry(Generic[T]):
    """What a key of the run configuration may name.

    Parameters
    ----------
    key : str
        The key.
    names : Mapping[str, T]
        The built-in ones.
    base : type, optional
        The class that others must extend; without it anything that can be called will do.
    joined : Callable, optional
        Makes one of several by name, and of the name that joins theirs.
    argument : str
        What a function is called with.
    forms : str
        Which names are allowed beside the built-in ones.
    """

    key: str
    names: Mapping[str, T]
    base: type | None = None
    joined: Callable[[Mapping[str, T], str], T] | None = None
    argument: str = "the data's shape"
    forms: str = FORMS

    def find(self, name: str) -> T:
        """The class or function of that name; a file is loaded once per process.

        Raises
        ------
        UserError
            When there is none, it is something else, or its file cannot be loaded.
        """
        if name in self.names:
            return self.names[name]
        if is_session_name(name):
            return self._own(name)
        if self.joined and len(several := parts(name)) > 1:
            return self.joined({one: self.find(one) for one in several}, name)
        place, colon, attribute = name.rpartition(":")
        if not colon:
            raise unknown_name(self.key, name, self.names, self.forms, self._of_another_key(name))
        try:
            module = _file(place) if place.endswith(".py") else _importable(place)
        except FileNotFoundError as error:
            raise not_allowed(self.key, name, f"a file: there is no {error}") from None
        except _LoadError as error:
            raise UserError(f"{self.key}: {name!r} cannot be loaded: {error}") from None
        if not hasattr(module, attribute):
            here = [word for word, value in vars(module).items() if self._is_defined_in(value, module)]
            raise unknown_name(self.key, attribute, here, "" if here else f"{self._wanted} in {place}")
        found = getattr(module, attribute)
        if not self._fits(found):
            raise not_allowed(self.key, name, self._wanted)
        return found  # type: ignore[no-any-return]

    def check(self, value: object) -> None:
        """Refuse an object that the key cannot mean.

        Raises
        ------
        UserError
            For one that does not extend `base`, or cannot be called.
        """
        if not self._fits(value):
            raise UserError(f"{self.key}: {self._described(value)} is not allowed; expected {self._wanted}")

    def _own(self, name: str) -> T:
        objects = session_objects()
        if name not in objects:
            raise UserError(
                f"{self.key}: {name!r} was an object of another run's process; it is to be given again, "
                f"from Python: {self.key}={short(name)}"
            )
        self.check(objects[name])
        return objects[name]  # type: ignore[return-value]

    def _of_another_key(self, name: str) -> str:
        """Which key has this name, if it is none of this one's: FedProx for one is an objective here."""
        others = (STRATEGY, CLIENT, OBJECTIVE, LOSS)
        found = [other.key for other in others if name.lower() in other.names and other is not self]
        return f"it is {found[0]} {name.lower()!r}" if found and name.lower() not in self.names else ""

    @staticmethod
    def _described(value: object) -> str:
        if isinstance(value, type):
            return f"the class {value.__name__}"
        return f"an object of type {type(value).__name__}"

    @property
    def _wanted(self) -> str:
        return f"a subclass of {self.base.__name__}" if self.base else f"a function of {self.argument}"

    def _fits(self, value: object) -> bool:
        if self.base is None:
            return callable(value)
        return isinstance(value, type) and issubclass(value, self.base)

    def _is_defined_in(self, value: object, module: ModuleType) -> bool:
        return self._fits(value) and getattr(value, "__module__", "").startswith(module.__name__)


class _Metrics(Registry[type[Metric]]):
    """Metrics, ours and torchmetrics'."""

    def _fits(self, value: object) -> bool:
        return super()._fits(value) or is_torchmetric(value)


class _Models(Registry[Callable[..., object]]):
    """Networks, ours and those of other libraries."""

    def find(self, name: str) -> Callable[..., object]:
        return of_library(name) if is_of_library(name) else super().find(name)


STRATEGY = Registry("strategy", STRATEGIES, PseudoGradientStrategy)
CLIENT = Registry("client", CLIENTS, FedAvgClient, union)
OBJECTIVE = Registry("objective", OBJECTIVES, Objective)
LOSS = Registry("loss", LOSSES, Loss)
PROBLEM = Registry("problem", PROBLEMS, Problem)
METRIC = _Metrics("metrics", METRICS, Metric)
MODEL = _Models("model", MODELS, forms=f"{FORMS}, or {OF_LIBRARY}")
SELECTION = Registry("selection", SELECTIONS, Selection)
COMPRESS = Registry("compress", CODECS, Codec)
EXTENSION = Registry("extension", EXTENSIONS, Extension)
FUNCTIONS: Mapping[str, Callable[[str], object]] = {}
DATASET = Registry("dataset", FUNCTIONS, argument="'train' or 'test'")
"""Functions that return data; see `data.readers.own_function`."""


def models_named(name: str) -> list[str]:
    """The models that a ``+`` joins: the clients have them in turn."""
    return parts(name, MODELS)


@contextmanager
def as_user_error(
    key: str, name: str, kind: type[UserError | RunFailed] = UserError, but: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Re-raise an exception of an algorithm's code as an error of one line, by default a UserError.

    Raises
    ------
    UserError, RunFailed
        With what was raised, and where; those themselves, and exceptions of ``but``, pass as they are.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, (UserError, RunFailed, *but)):
            raise
        if isinstance(error, WrongResult):
            raise kind(f"{key}: {name!r}: {error}") from error
        raise kind(f"{key}: {name!r} raised {_line(error)}") from error


class _LoadError(Exception):
    """A module raised when it was loaded; the message is one line."""


def absolute(name: str, known: Container[str] = CLIENTS) -> str:
    """The same algorithm for a process in another folder: a file's path in full; ``known`` ones have none."""
    if len(several := parts(name, known)) > 1:
        return JOIN.join(map(absolute, several))
    place, _, attribute = name.rpartition(":")
    path = code_file(place) if place.endswith(".py") else None
    return f"{path}:{attribute}" if path else name


def short(name: str) -> str:
    """The name for tables and folders: of a file or a module ``stem.NAME``."""
    place, colon, attribute = name.rpartition(":")
    if is_of_library(name):
        return name
    if is_session_name(name):
        return name.rpartition(MARK)[0]
    if len(several := parts(name)) > 1:
        return JOIN.join(map(short, several))
    stem = Path(place).stem if place.endswith(".py") else place.rpartition(".")[2]
    return f"{stem}.{attribute}" if colon else name


def code_file(place: str) -> Path | None:
    """A file, looked for under the current directory and then under the app's folder."""
    found = (folder / path_of(place) for folder in (Path.cwd(), APP))
    return next((path.resolve() for path in found if path.is_file()), None)


def _file(place: str) -> ModuleType:
    path = code_file(place)
    if path is None:
        folders = "" if path_of(place).is_absolute() else f" in {Path.cwd()} or {APP}"
        raise FileNotFoundError(place + folders)
    return _loaded(path, _changed(path))


@process_cache(maxsize=256)
def _changed(path: Path) -> int:
    """When the file was changed, in nanoseconds; the same for a whole run, whoever edits it meanwhile."""
    return path.stat().st_mtime_ns


@cache
def _loaded(path: Path, changed: int) -> ModuleType:
    unique = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    spec = importlib.util.spec_from_file_location(f"_fedbn_{path.stem}_{unique}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # as an import does: its classes can be pickled, its types resolved
    try:
        with kept_surroundings():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise _LoadError(_line(error)) from error
    return module


def _importable(place: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:  # a script's folder is there, the current one is not
        sys.path.append(here)
    try:
        with kept_surroundings():
            return importlib.import_module(place)
    except (Exception, SystemExit) as error:
        raise _LoadError(_line(error)) from error


def _line(error: BaseException) -> str:
    """An exception in one line, with the file and line that raised it."""
    message = " ".join(traceback.format_exception_only(error)[-1].split())
    if isinstance(error, SyntaxError):
        return f"{message} ({error.filename}, line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    frame = [f for f in frames if "site-packages" not in f.filename][-1:] or frames[
        -1:
    ]  # whose mistake it is
    where = f"{frame[0].filename}, line {frame[0].lineno}"
    return message if "importlib" in where else f"{message} ({where})"
