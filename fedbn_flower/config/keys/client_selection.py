"""The key ``selection``: which of the available clients train in a round."""

from fedbn_flower.strategies import Selection

from ...core.errors import not_allowed
from ...core.input_spec import InputSpec
from ..registry import SELECTION, absolute, as_user_error

KEY = SELECTION.key
UNIFORM = "uniform"


def selection_named(text: str) -> Selection:
    """Return the selection that ``NAME``, ``NAME:ARGUMENT`` or ``FILE.py:NAME`` names.

    Raises
    ------
    UserError
        When there is none of that name, or its argument is not allowed.
    """
    name, _, argument = text.partition(":")
    if is_code(text):
        name, argument = text, ""
    cls = SELECTION.find(name)
    try:
        with as_user_error(KEY, text, but=(ValueError,)):
            return cls(argument)
    except ValueError as error:
        raise not_allowed(KEY, text, str(error)) from None


def check_selection(text: str, dataset: str) -> None:
    """Refuse a selection that there is not, or that needs what the server does not know.

    Raises
    ------
    UserError
        As `selection_named`; for any but ``uniform`` where only SuperNodes have data.
    """
    selection_named(text)
    if text != UNIFORM and InputSpec.parse(dataset):
        wanted = f"{UNIFORM!r} where only SuperNodes have data: the server does not know the clients' sizes"
        raise not_allowed(KEY, text, wanted)


def is_code(text: str) -> bool:
    """Whether it is code: ``FILE.py:NAME`` or ``package.module:NAME``, not ``NAME:ARGUMENT``."""
    return ":" in text and text.partition(":")[0] not in SELECTION.names


def absolute_selection(text: str) -> str:
    """Return the same for a process in another folder."""
    return absolute(text) if is_code(text) else text
