"""The keys of a run, in groups; each group's docstring is the title of its section.

The settings of an algorithm are declared in its class, and the keys of an extension beside it, not here.
"""

from collections.abc import Iterable
from typing import NamedTuple

from pydantic.fields import FieldInfo

from ...core.ground.settings import KeyGroup, flag_of
from ...extensions import KEY_GROUPS
from .general import Data, Evaluation, Folder, Run, Runtime, Start, System, Training

__all__ = [
    "ALIASES",
    "RUN_KEYS",
    "SECTIONS",
    "Data",
    "Evaluation",
    "Folder",
    "Run",
    "Runtime",
    "Start",
    "System",
    "Training",
    "flag_of",
    "title_of",
]

OWN = (Run, Data, Training, Start, System, Evaluation, Runtime, Folder)


class Key(NamedTuple):
    """A key with its declaration, and the title of its section."""

    name: str
    field: FieldInfo
    title: str


def title_of(group: type[KeyGroup]) -> str:
    """Return the title of a group's section."""
    return group.__doc__ or ""


def in_order(groups: Iterable[type]) -> list[Key]:
    """Return the keys of groups; each group follows the key that it names, or comes last."""
    found: list[Key] = []
    for group in groups:
        assert issubclass(group, KeyGroup)
        place = next((i for i, key in enumerate(found, 1) if key.name == group.after), len(found))
        fields = group.model_fields.items()
        found[place:place] = [Key(flag_of(name), field, title_of(group)) for name, field in fields]
    return found


_KEYS = in_order((*OWN, *KEY_GROUPS))
RUN_KEYS = {key.name: key.field for key in _KEYS}
"""Every key with its declaration."""
SECTIONS = {
    title: {k.name: k.field for k in _KEYS if k.title == title}
    for title in dict.fromkeys(k.title for k in _KEYS)
}
"""The keys of each section, by its title."""
ALIASES = {"lockstep": "fast"}
"""Other words for a key; ``auto`` is as if they were not given."""
