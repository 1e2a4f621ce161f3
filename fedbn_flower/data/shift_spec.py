"""Which client sees its images in which domain, as the words of ``--feature-shift``."""

from collections.abc import Mapping

from numpy.typing import NDArray

from ..errors import unknown_name

PLAIN = "none"
SHIFTS = ("inverted", "rotated", "noisy", "coloured", "blended")
MIXED = "mixed"
FORMS = f"names of {', '.join((PLAIN, *SHIFTS))}, joined by +"


def domains(text: str) -> tuple[str, ...]:
    """The names in ``NAME+NAME``.

    Raises
    ------
    UserError
        When one is unknown.
    """
    names = tuple(text.split("+"))
    for name in names:
        if name not in (PLAIN, *SHIFTS):
            raise unknown_name("feature-shift", name, (PLAIN, *SHIFTS), "several of them joined by +")
    return names


def column_of(domain: str) -> str:
    """The column that holds the images of a domain."""
    return "x" if domain == PLAIN else f"x-{domain}"


def seen_by(columns: Mapping[str, NDArray], text: str, client: int | None) -> Mapping[str, NDArray]:
    """The columns as that client sees them: client i in the domain of number i modulo how many there are.

    None is the server: it sees row r in the domain of number r modulo how many there are.
    """
    if text == PLAIN:
        return columns
    names = domains(text)
    own = column_of(MIXED if client is None else names[client % len(names)])
    others = {name: column for name, column in columns.items() if not name.startswith("x-")}
    return {**others, "x": columns[own]}
