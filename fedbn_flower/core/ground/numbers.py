"""Numbers as a person writes them in the argument of a name."""

import math


def finite_number(text: str) -> int | float | None:
    """Return a finite number, whole where it is written so; None of any other text."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else None
    return None
