"""Which client sees its images in which domain, as the words of ``--feature-shift``."""

from collections.abc import Mapping

from numpy.typing import NDArray

from ...core.errors import unknown_name

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


def domain_of(text: str, client: int) -> int:
    """The number of the domain in which that client sees its images: its own modulo how many there are."""
    return client % len(domains(text))


def seen_by(columns: Mapping[str, NDArray], text: str, client: int | None) -> Mapping[str, NDArray]:
    """The columns as that client sees them, in the domain of `domain_of`.

    None is the server: it sees row r in the domain of number r modulo how many there are.
    """
    if text == PLAIN:
        return columns
    own = column_of(MIXED if client is None else domains(text)[domain_of(text, client)])
    others = {name: column for name, column in columns.items() if not name.startswith("x-")}
    return {**others, "x": columns[own]}
