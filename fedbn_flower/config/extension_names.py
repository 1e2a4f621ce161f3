"""The extensions that a run names: ``FILE.py:NAME``, several with commas."""

from ..extensions import EXTENSIONS, Extension
from ..names import Registry, absolute

EXTENSION = Registry("extension", EXTENSIONS, Extension)
NONE = "none"


def extension_names(text: str) -> list[str]:
    """Return the names in a text with commas; none of ``none``."""
    return [] if text == NONE else [name.strip() for name in text.split(",")]


def absolute_extensions(text: str) -> str:
    """Return the same names for a process in another folder."""
    return ",".join(absolute(name, EXTENSION.names) for name in extension_names(text)) or NONE
