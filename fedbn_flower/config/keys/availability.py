"""The key ``availability``: in which rounds a client is available."""

from ...core.errors import not_allowed
from ...core.files import absolute

HEADER = ("partition-id", "from", "to")
AVAILABILITY = f"always, cycle:PERIOD,ON with 1 <= ON <= PERIOD, or a CSV file with header {','.join(HEADER)}"


def cycle_of(text: str) -> tuple[int, int] | None:
    """PERIOD and ON of ``cycle:PERIOD,ON``; None for any other text.

    Raises
    ------
    UserError
        Unless both are integers with 1 <= ON <= PERIOD.
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
    """The value with a file's path made absolute, for a process in another folder.

    Raises
    ------
    UserError
        For an invalid cycle.
    """
    return text if text == "always" or cycle_of(text) else absolute(text)
