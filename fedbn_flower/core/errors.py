"""The exceptions that a user sees, each with a one-line message."""

import os
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from sysconfig import get_path

from .text import hint, visible

_PROJECT = Path(__file__).resolve().parents[2]
_OURS = [str(_PROJECT / name) for name in ("fedbn_flower", "clients", "strategies")]
NOT_THE_USERS = ("<", *(folder + os.sep for folder in (get_path("stdlib"), get_path("purelib"), *_OURS)))
"""How the file names of code begin that is Python's, installed or ours."""


LONGEST_VALUE = 300
"""Characters of a value in a message."""
NOTHING = ("", "auto")
"""Values of a key that nobody gave."""
BITS = 64
"""Of whole numbers, as Flower's run configuration carries them."""


class UserError(ValueError):
    """A mistake in what the user asked for; the message names the key, the value and what is allowed.

    It is one line, whatever it quotes.
    """

    def __init__(self, *message: object) -> None:
        super().__init__(*(visible(part) if isinstance(part, str) else part for part in message))


class RunFailed(RuntimeError):
    """The run could not complete, for example because every client failed in every round."""


class RunCutOff(RunFailed):
    """The runtime broke down during the run; the run can be resumed."""


@contextmanager
def os_errors_as_user_errors(key: str, what: str) -> Iterator[None]:
    """Re-raise an OSError (no permission, a full disk) as ``UserError("KEY: cannot WHAT (REASON)")``.

    A pipe that nobody reads is not meant: it is where the output goes.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(f"{key}: cannot {what} ({error})") from error


def described(error: BaseException) -> str:
    """Return ``TYPE: MESSAGE``, with the last line of the user's own code that it passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    written = [frame for frame in frames if not frame.filename.startswith(NOT_THE_USERS)]
    where = f" ({Path(written[-1].filename).name}, line {written[-1].lineno})" if written else ""
    return f"{type(error).__name__}: {error}{where}"


def not_allowed(key: str, value: object, allowed: str, meant: str = "") -> UserError:
    """Return the error for a value that is not allowed, with a `hint` at what may have been meant."""
    what = "missing" if isinstance(value, str) and value in NOTHING else f"{_quoted(value)} is not allowed"
    return UserError(f"{key}: {what}{meant}; expected {allowed}")


def _quoted(value: object) -> str:
    """A value as Python writes it, the middle of a long one left out."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of so many digits
        return "a whole number of over 4000 digits"
    except Exception as error:  # of an object of the user's
        return f"an object of type {type(value).__name__}, whose repr raised {type(error).__name__},"
    half = LONGEST_VALUE // 2
    return text if len(text) <= LONGEST_VALUE else f"{text[:half]}...{text[-half:]}"


def check_plain(key: str, value: object) -> None:
    """Refuse text that no path and no file can hold, and whole numbers beyond 64 bits.

    Raises
    ------
    UserError
        For text with a NUL character; for such a number.
    """
    if isinstance(value, str) and "\0" in value:
        raise not_allowed(key, value, "text without NUL characters")
    if isinstance(value, int) and value.bit_length() >= BITS:
        raise not_allowed(key, value, f"a number that {BITS} bits hold")


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
    return UserError(f"{key}: unknown name {_quoted(value)}{suggestion}; expected {expected}")


@dataclass(frozen=True)
class Conflict:
    """A key whose value does not go with the rest of a run, and what is allowed in its place."""

    key: str
    value: object
    allowed: str

    @property
    def error(self) -> UserError:
        """The error that a run's caller gets."""
        return not_allowed(self.key, self.value, self.allowed)


@dataclass(frozen=True)
class Unused(Conflict):
    """A key that was given, and that nothing uses; ``allowed`` says when something would."""

    @property
    def error(self) -> UserError:
        return UserError(f"{self.key}: {self.value} is not used {self.allowed}")


def refuse(conflicts: Iterable[Conflict]) -> None:
    """Raise the error of the first conflict, if there is one.

    Raises
    ------
    UserError
        For it.
    """
    for conflict in conflicts:
        raise conflict.error
