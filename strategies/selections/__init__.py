"""Which of the available clients train in a round, one file each."""

from .base import Candidates, Selection
from .by_size import BySize
from .power_of_choice import PowerOfChoice
from .uniform import Uniform

SELECTIONS: dict[str, type[Selection]] = {
    "uniform": Uniform,
    "by-size": BySize,
    "power-of-choice": PowerOfChoice,
}
"""Built-in selections by name. To add one, import it above and enter it here."""

__all__ = ["SELECTIONS", "Candidates", "Selection"]
