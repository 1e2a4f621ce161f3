"""The exceptions that a user sees, each with a one-line message."""

import os
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from sysconfig import get_path

from .suggestions import hint

_PROJECT = Path(__file__).resolve().parents[2]
_OURS = [str(_PROJECT / name) for name in ("fedbn_flower", "clients", "strategies")]
NOT_THE_USERS = ("<", *(folder + os.sep for folder in (get_path("stdlib"), get_path("purelib"), *_OURS)))
"""How the file names of code begin that is Python's, installed or ours."""


class UserError(ValueError):
    """A mistake in what the user asked for; the message names the key, the value and what is allowed."""


class RunFailed(RuntimeError):
    """The run could not complete, for example because every client failed in every round."""


class RunCutOff(RunFailed):
    """The runtime broke down during the run; the run can be resumed."""


@contextmanager
def os_errors_as_user_errors(key: str, what: str) -> Iterator[None]:
    """Re-raise an OSError (no permission, a full disk) as ``UserError("KEY: cannot WHAT (REASON)")``."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{key}: cannot {what} ({error})") from error


def described(error: BaseException) -> str:
    """Return ``TYPE: MESSAGE``, with the last line of the user's own code that it passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    written = [frame for frame in frames if not frame.filename.startswith(NOT_THE_USERS)]
    where = f" ({Path(written[-1].filename).name}, line {written[-1].lineno})" if written else ""
    return f"{type(error).__name__}: {error}{where}"


def not_allowed(key: str, value: object, allowed: str) -> UserError:
    """Return the error for a value that is not allowed."""
    return UserError(f"{key}: {value!r} is not allowed; expected {allowed}")


def unknown_name(
    key: str, value: str, names: Iterable[str], otherwise: str = "", meant: str = ""
) -> UserError:
    """Return the error for a name that is not one of ``names``.

    Parameters
    ----------
    key : str
        The key that has the name.
    value : str
        The name.
    names : Iterable[str]
        The names that are allowed.
    otherwise : str
        What else is allowed, in words.
    meant : str
        What the name stands for elsewhere. Without it the most similar of ``names`` is suggested.
    """
    names = sorted(names)
    choices = [f"one of {', '.join(names)}"] if names else []
    expected = " or ".join([*choices, *filter(None, [otherwise])])
    suggestion = f" ({meant})" if meant else hint(value, names)
    return UserError(f"{key}: unknown name {value!r}{suggestion}; expected {expected}")
