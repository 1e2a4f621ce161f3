"""Which of the available clients train in a round, one file each."""

from pkgutil import resolve_name

from .base import Candidates, Selection

_PLACES = {
    "uniform": "uniform:Uniform",
    "by-size": "by_size:BySize",
    "power-of-choice": "power_of_choice:PowerOfChoice",
}
"""Built-in selections: name -> ``module:Class`` in this package. To add one, add a line here."""

SELECTIONS: dict[str, type[Selection]] = {
    name: resolve_name(f"{__name__}.{place}") for name, place in _PLACES.items()
}

__all__ = ["SELECTIONS", "Candidates", "Selection"]
