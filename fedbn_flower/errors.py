"""Errors that are told in one line."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class UserError(ValueError):
    """A mistake in what the user asked for; the message names the key, the value and what is allowed."""


class RunFailed(RuntimeError):
    """The run could not do its work, such as when every client failed in every round."""


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


def unknown_name(key: str, value: str, names: Iterable[str], otherwise: str = "") -> UserError:
    """The error for a name that is none of ``names``, with the nearest one; ``otherwise`` is what else is
    allowed, in words."""
    names = sorted(names)
    near = difflib.get_close_matches(value, names, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    one = [f"one of {', '.join(names)}"] if names else []
    expected = " or ".join([*one, *filter(None, [otherwise])])
    return UserError(f"{key}: unknown name {value!r}{hint}; expected {expected}")
