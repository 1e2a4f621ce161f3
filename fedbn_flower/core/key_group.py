"""The base of a group of keys."""

from typing import ClassVar

from pydantic import ConfigDict

from .ground.settings import Numbers


def flag_of(name: str) -> str:
    """A field's name on the command line and in a run configuration."""
    return name.replace("_", "-")


class KeyGroup(Numbers):
    """Keys of a run that belong together; the docstring of a subclass is their title.

    Text may be given as a number, as Python and TOML write it: a folder may be called 2024, a layer 0.
    """

    model_config = ConfigDict(alias_generator=flag_of, frozen=True)
    bits: ClassVar[int] = 63
    of_references: ClassVar[bool] = True
    """Whether they mean something in a run that a federation is compared with, in which all take part."""
    protects: ClassVar[bool] = False
    """Whether they say how what leaves a client is protected: nothing of that is in an estimate of time."""
    after: ClassVar[str] = ""
    """The key that these follow in ``--help``: in its section if that has the same title, else below it."""
