"""Errors that are told in one line."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from .suggestions import hint


class UserError(ValueError):
    """A mistake in what the user asked for; the message names the key, the value and what is allowed."""


class RunFailed(RuntimeError):
    """The run could not do its work, such as when every client failed in every round."""


class RunCutOff(RunFailed):
    """What the run ran on broke under it; it can be gone on with."""


@contextmanager
def os_errors_told(key: str, what: str) -> Iterator[None]:
    """Tell what the system refuses (no permission, a full disk) in one line: of that key, what cannot be
    done."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{key}: cannot {what} ({error})") from error


def not_allowed(key: str, value: object, allowed: str) -> UserError:
    """The error for one bad value."""
    return UserError(f"{key}: {value!r} is not allowed; expected {allowed}")


def unknown_name(
    key: str, value: str, names: Iterable[str], otherwise: str = "", meant: str = ""
) -> UserError:
    """The error for a name that is none of ``names``; ``otherwise`` is what else is allowed, in words, and
    ``meant`` what the name is, where that is known; else the nearest one is told."""
    names = sorted(names)
    one = [f"one of {', '.join(names)}"] if names else []
    expected = " or ".join([*one, *filter(None, [otherwise])])
    near = f" ({meant})" if meant else hint(value, names)
    return UserError(f"{key}: unknown name {value!r}{near}; expected {expected}")
