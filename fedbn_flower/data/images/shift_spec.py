"""Parse ``--feature-shift``: the domain in which each client sees its images."""

from collections.abc import Mapping

from numpy.typing import NDArray

from ...core.errors import unknown_name

PLAIN = "none"
SHIFTS = ("inverted", "rotated", "noisy", "coloured", "blended")
MIXED = "mixed"
FORMS = f"names of {', '.join((PLAIN, *SHIFTS))}, joined by +"


def domains(text: str) -> tuple[str, ...]:
    """Parse ``NAME+NAME`` to the names of domains.

    Raises
    ------
    UserError
        When a name is unknown.
    """
    names = tuple(text.split("+"))
    for name in names:
        if name not in (PLAIN, *SHIFTS):
            raise unknown_name("feature-shift", name, (PLAIN, *SHIFTS), "several of them joined by +")
    return names


def column_of(domain: str) -> str:
    """Return the name of the column with the images of a domain."""
    return "x" if domain == PLAIN else f"x-{domain}"


def masks_of(domain: str) -> str:
    """Return the name of the column with the masks of a domain, if they differ from the plain ones."""
    return f"y-{domain}"


def domain_of(text: str, client: int) -> int:
    """Return the number of a client's domain: the client's number modulo the number of domains."""
    return client % len(domains(text))


def seen_by(columns: Mapping[str, NDArray], text: str, client: int | None) -> Mapping[str, NDArray]:
    """Return the columns as a client sees them, in the domain of `domain_of`.

    For the server, ``client`` is None: it sees row r in domain r modulo the number of domains.
    """
    if text == PLAIN:
        return columns
    domain = MIXED if client is None else domains(text)[domain_of(text, client)]
    others = {name: column for name, column in columns.items() if not name.startswith(("x-", "y-"))}
    targets = columns.get(masks_of(domain), columns["y"])
    return {**others, "x": columns[column_of(domain)], "y": targets}
