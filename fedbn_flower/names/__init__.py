"""What a run names, by key: built-in things, the user's own code, and objects of the session."""

from .client_unions import parts
from .registries import (
    CLIENT,
    COMPRESS,
    DATASET,
    LOSS,
    METRIC,
    OBJECTIVE,
    PROBLEM,
    SELECTION,
    STRATEGY,
    made,
    name_now,
)
from .registry import FORMS, Registry, absolute, short
from .user_code import APP, as_user_error, code_file

__all__ = [
    "APP",
    "CLIENT",
    "COMPRESS",
    "DATASET",
    "FORMS",
    "LOSS",
    "METRIC",
    "OBJECTIVE",
    "PROBLEM",
    "SELECTION",
    "STRATEGY",
    "Registry",
    "absolute",
    "as_user_error",
    "code_file",
    "made",
    "name_now",
    "parts",
    "short",
]
