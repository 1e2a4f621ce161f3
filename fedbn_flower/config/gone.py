"""Keys that were removed because they duplicated another one, and their replacements."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..core.errors import UserError
from ..names import name_now
from .keys import RUN_KEYS


class Gone(NamedTuple):
    """The key that replaces it, the form of its value, and former values without an effect."""

    key: str
    form: str
    neutral: tuple[str, ...]


GONE = {
    "client-lr-decay": Gone("client-lr-schedule", "exponential:{}", ("1",)),
    "target-accuracy": Gone("target", "accuracy={}", ("0",)),
    "tensorboard": Gone("track", "tensorboard", ("0", "false", "off", "no", "f", "n")),
}


def refuse_gone(key: str, values: Iterable[object]) -> None:
    """Refuse a key that was removed.

    Raises
    ------
    UserError
        For such a key; the message gives each value in its new form.
    """
    if key in GONE:
        new = ",".join(_in_new_form(key, value) for value in values)
        raise UserError(f"{key}: gone; write {GONE[key].key} {new!r}")


def in_new_keys(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored configuration, or its lists of values, with current keys and names."""
    found = {key: _named_now(key, value) for key, value in stored.items() if key not in GONE}
    for key in filter(stored.__contains__, GONE):
        new, value = GONE[key].key, stored[key]
        if found.get(new, _default(new)) == _default(new):
            many = isinstance(value, list)
            found[new] = [_in_new_form(key, one) for one in value] if many else _in_new_form(key, value)
    return found


def _named_now(key: str, value: Any) -> Any:
    return [name_now(key, one) for one in value] if isinstance(value, list) else name_now(key, value)


def _in_new_form(key: str, value: object) -> str:
    new, form, neutral = GONE[key]
    text = str(value).lower()
    return _default(new) if _number(text) in map(_number, neutral) else form.format(text)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _default(key: str) -> str:
    return str(RUN_KEYS[key].default)
