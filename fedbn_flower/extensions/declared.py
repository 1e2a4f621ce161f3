"""What an extension declares before a run: its place, and what it says of a configuration."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..core.errors import Conflict
from ..core.ground.settings import overridden


@dataclass(frozen=True)
class About:
    """What an extension says of a run's configuration.

    Parameters
    ----------
    papers : Sequence[str]
        What to cite: keys of ``papers.md``.
    apart : str
        Why clients cannot evaluate a round's model with the next one's training; empty if they can.
    keeps_state : bool
        Whether clients need what their nodes keep in RAM between messages.
    """

    papers: Sequence[str] = ()
    apart: str = ""
    keeps_state: bool = False


class Declared:
    """The base of `ServerHook` and `SiteHook`."""

    place: ClassVar[int] = 1000
    """Its place in the order from the wire: what comes from it goes through extensions in this order, what
    goes to it (`send`, `settings`, `SiteHook.trained`) in the opposite one. Of those that end a run in one
    round, the first says why; of those that do not go with the rest of a configuration, it is told first.
    Those of one place are in the order in which the run names them."""
    published_only: ClassVar[bool] = False
    """Whether it uses nothing of the answers but what is published: the model, and what follows from it. Only
    such an extension goes with ``dp``."""
    in_workers: ClassVar[bool] = False
    """Whether `SiteHook.trained` may run in a worker that sums the updates of a group of clients: what it
    makes of an update must be all that the server needs. Without it, a simulation of clients whose updates
    are changed sends every update by itself."""

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        """Yield what of a run's configuration the extension does not go with."""
        yield from ()

    @classmethod
    def about(cls, config: Mapping[str, Any]) -> About:
        """Return what else it says of a run's configuration."""
        return About()

    @classmethod
    def made_of(cls, federation: Any) -> Mapping[str, Any]:
        """Return what an annex's extension is made of beside the run, of a `Federation`."""
        return {}

    @classmethod
    def seen(cls, found: Mapping[str, Any]) -> Iterator[str]:
        """Yield paragraphs of the report on what the server saw, from what `ServerHook.summary` returned."""
        yield from ()


def overrides(cls: type, base: type, hooks: Iterable[str]) -> bool:
    """Return whether an extension is a ``base`` with a hook of its own among these."""
    return issubclass(cls, base) and bool(overridden(cls, base, hooks))
