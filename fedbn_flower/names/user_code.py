"""The user's own code: the files and modules that names stand for, and their mistakes in one line."""

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

from fedbn_flower.clients.modules.surroundings import kept_surroundings
from fedbn_flower.clients.returned import WrongResult

from ..core.errors import RunFailed, UserError
from ..core.files import path_of
from ..core.process_cache import process_cache

APP = Path(__file__).resolve().parents[2]
"""The folder that holds this package: the checkout, or where Flower has unpacked the app."""


class LoadError(Exception):
    """A module raised when it was loaded; the message is one line."""


def module_named(place: str) -> ModuleType:
    """Return the module of ``FILE.py`` or ``package.module``; a file is loaded once per process.

    Raises
    ------
    FileNotFoundError
        When there is no such file; the message says where it was looked for.
    LoadError
        When its code raises.
    """
    return _file(place) if place.endswith(".py") else _importable(place)


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
        raise LoadError(_line(error)) from error
    return module


def _importable(place: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:  # a script's folder is there, the current one is not
        sys.path.append(here)
    try:
        with kept_surroundings():
            return importlib.import_module(place)
    except (Exception, SystemExit) as error:
        raise LoadError(_line(error)) from error


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
