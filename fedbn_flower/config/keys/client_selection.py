"""The key ``selection``: which of the available clients train in a round."""

from fedbn_flower.strategies import Selection

from ...core.errors import not_allowed
from ...core.input_spec import InputSpec
from ...names import SELECTION
from ...names.with_argument import made

KEY = SELECTION.key
UNIFORM = "uniform"


def selection_named(text: str) -> Selection:
    """Return the selection that ``NAME``, ``NAME:ARGUMENT`` or ``FILE.py:NAME`` names.

    Raises
    ------
    UserError
        When there is none of that name, or its argument is not allowed.
    """
    return made(SELECTION, text)


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
