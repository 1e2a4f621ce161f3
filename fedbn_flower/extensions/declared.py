"""What an extension declares before a run: its place in the order, and its conflicts with a configuration."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..core.errors import Conflict
from ..core.ground.settings import overridden


@dataclass(frozen=True)
class About:
    """An extension's facts on a run's configuration.

    Parameters
    ----------
    papers : Sequence[str]
        What to cite: keys of ``papers.md``.
    apart : str
        Why clients cannot evaluate a round's model with the next one's training; empty if they can.
    keeps_state : bool
        Whether clients need state that their nodes keep in RAM between messages.
    """

    papers: Sequence[str] = ()
    apart: str = ""
    keeps_state: bool = False


class Declared:
    """The base of `ServerHook` and `SiteHook`."""

    place: ClassVar[int] = 1000
    """Its position, counted from the wire: incoming messages pass extensions in this order, outgoing ones
    (`send`, `settings`, `SiteHook.trained`) in reverse. If several end the run in one round, or conflict with
    the configuration, the first in this order is reported. Extensions of equal place are in the order in
    which the run names them."""
    published_only: ClassVar[bool] = False
    """Whether it uses only what is published: the model, and what is computed from it. Other extensions are
    refused with ``dp``."""
    in_workers: ClassVar[bool] = False
    """Whether `SiteHook.trained` may run in a worker that sums the updates of a group of clients: the changed
    update must be all that the server needs. If False, a simulation whose updates are changed sends every
    update to the server."""

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        """Yield the extension's conflicts with a run's configuration."""
        yield from ()

    @classmethod
    def about(cls, config: Mapping[str, Any]) -> About:
        """Return further facts on a run's configuration."""
        return About()

    @classmethod
    def made_of(cls, federation: Any) -> Mapping[str, Any]:
        """Return further constructor arguments of an annex's extension, taken from a `Federation`."""
        return {}

    @classmethod
    def seen(cls, found: Mapping[str, Any]) -> Iterator[str]:
        """Yield paragraphs of the report on what the server saw, given the result of `ServerHook.summary`."""
        yield from ()


def overrides(cls: type, base: type, hooks: Iterable[str]) -> bool:
    """Return whether an extension is a subclass of ``base`` that overrides one of these hooks."""
    return issubclass(cls, base) and bool(overridden(cls, base, hooks))
