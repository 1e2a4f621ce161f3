"""What a run names, by key: built-in things, the user's own code, and objects of the session."""

from .client_unions import parts
from .registries import (
    CLIENT,
    COMPRESS,
    DATASET,
    LOSS,
    METRIC,
    MODEL,
    NORM,
    OBJECTIVE,
    PROBLEM,
    SELECTION,
    STRATEGY,
    WITH_ARGUMENT,
    absolute_name,
    is_code,
    made,
    models_named,
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
    "MODEL",
    "NORM",
    "OBJECTIVE",
    "PROBLEM",
    "SELECTION",
    "STRATEGY",
    "WITH_ARGUMENT",
    "Registry",
    "absolute",
    "absolute_name",
    "as_user_error",
    "code_file",
    "is_code",
    "made",
    "models_named",
    "name_now",
    "parts",
    "short",
]
