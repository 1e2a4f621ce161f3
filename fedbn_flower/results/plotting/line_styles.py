"""Line styles that stay distinct in colour, in grey and for the colour-blind."""

from typing import Any

COLOURS = ("#0077bb", "#ee7733", "#009988", "#cc3311", "#33bbee", "#ee3377")
"""Paul Tol's vibrant scheme, safe for the colour-blind."""
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
MARKED_POINTS = 20  # approximate number of markers on a line


def line_style(number: int, points: int = 0) -> dict[str, Any]:
    """Return Matplotlib's arguments for line ``number``, counted from 0, of a figure.

    Lines 0 to 35 differ in dashes or marker, lines 0 to 17 also in colour or marker.
    """
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 4,
        "linewidth": 1.4,
        "markevery": max(1, -(-points // MARKED_POINTS)),
    }
