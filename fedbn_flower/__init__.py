"""Federated learning on Flower: any server rule with any BatchNorm policy and any local objective."""

from importlib import import_module
from typing import TYPE_CHECKING

from . import packages

if TYPE_CHECKING:
    from .api import simulate
    from .errors import RunFailed, UserError
    from .observer import Observer, RoundResult
    from .results.result import Result, load_model

__version__ = "0.2.0"

__all__ = ["Observer", "Result", "RoundResult", "RunFailed", "UserError", "load_model", "simulate"]

packages.install()

_PLACES = {
    "Observer": ".observer",
    "Result": ".results.result",
    "RoundResult": ".observer",
    "RunFailed": ".errors",
    "UserError": ".errors",
    "load_model": ".results.result",
    "simulate": ".api",
}


def __getattr__(name: str) -> object:
    """Import what is asked for, and no more: torch, Flower and Ray take seconds."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
