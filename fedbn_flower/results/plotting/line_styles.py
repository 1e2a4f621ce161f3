"""How lines are told apart, in colour, in grey and by those who do not see every colour."""

from typing import Any

COLOURS = ("#0077bb", "#ee7733", "#009988", "#cc3311", "#33bbee", "#ee3377")
"""The vibrant scheme of Paul Tol, which is safe for the colour-blind."""
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
MARKED = 20  # points of a line that have a marker, about


def line_style(number: int, points: int = 0) -> dict[str, Any]:
    """Matplotlib's arguments for a picture's line of that number, from 0, with so many points.

    The first 36 differ in dashes or marker, the first 18 also in colour or marker.
    """
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 4,
        "linewidth": 1.4,
        "markevery": max(1, -(-points // MARKED)),
    }
