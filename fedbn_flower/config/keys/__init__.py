"""The keys of a run, in groups; each group's docstring is its title.

The settings of an algorithm are declared in its class, not here: see `selection`.
"""

from ...core.key_group import KeyGroup, flag_of
from .compression import Compression
from .devices import Devices
from .general import Data, Evaluation, Folder, Run, Runtime, Start, System, Training
from .privacy import Privacy
from .protocol import Protocol

__all__ = [
    "ALIASES",
    "GROUPS",
    "RUN_KEYS",
    "Compression",
    "Data",
    "Devices",
    "Evaluation",
    "Folder",
    "KeyGroup",
    "Privacy",
    "Protocol",
    "Run",
    "Runtime",
    "Start",
    "System",
    "Training",
    "flag_of",
]

GROUPS: tuple[type[KeyGroup], ...] = (
    Run,
    Data,
    Training,
    Compression,
    Start,
    System,
    Devices,
    Protocol,
    Privacy,
    Evaluation,
    Runtime,
    Folder,
)

RUN_KEYS = {flag_of(name): field for group in GROUPS for name, field in group.model_fields.items()}
"""Every key with its declaration."""

ALIASES = {"lockstep": "fast"}
"""Other words for a key; ``auto`` is as if they were not given."""
