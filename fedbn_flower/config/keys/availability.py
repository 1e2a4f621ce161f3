"""The key ``availability``: in which rounds a client is there."""

from ...core.errors import not_allowed
from ...core.files import absolute

HEADER = ("partition-id", "from", "to")
AVAILABILITY = f"always, cycle:PERIOD,ON with 1 <= ON <= PERIOD, or a CSV file with header {','.join(HEADER)}"


def cycle_of(text: str) -> tuple[int, int] | None:
    """PERIOD and ON of ``cycle:PERIOD,ON``; None of anything else.

    Raises
    ------
    UserError
        When they are not two whole numbers, 1 <= ON <= PERIOD.
    """
    kind, _, argument = text.partition(":")
    if kind != "cycle":
        return None
    try:
        period, on = map(int, argument.split(","))
    except ValueError:
        raise not_allowed("availability", text, AVAILABILITY) from None
    if not 1 <= on <= period < 2**63:
        raise not_allowed("availability", text, AVAILABILITY)
    return period, on


def absolute_availability(text: str) -> str:
    """The value for a process in another folder: a file's path in full.

    Raises
    ------
    UserError
        For a cycle that cannot be.
    """
    return text if text == "always" or cycle_of(text) else absolute(text)
