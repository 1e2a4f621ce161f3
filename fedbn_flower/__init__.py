"""Federated learning on Flower: any server rule with any BatchNorm policy and any local objective."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import packages
from .core.version import __version__

if TYPE_CHECKING:
    from .api.result import Result, export_model, load_model
    from .api.simulate import simulate
    from .core.errors import Conflict, RunFailed, UserError
    from .extensions import Extension, Stop
    from .records.events import Observer, RoundResult, RunInfo

__all__ = [
    "AppResult",
    "Conflict",
    "Extension",
    "Observer",
    "Result",
    "RoundResult",
    "RunFailed",
    "RunInfo",
    "Stop",
    "UserError",
    "__version__",
    "export_model",
    "load_model",
    "run_app",
    "simulate",
]

packages.install()

_PLACES = {
    "Conflict": ".core.errors",
    "Extension": ".extensions",
    "Observer": ".records.events",
    "Result": ".api.result",
    "RoundResult": ".records.events",
    "RunFailed": ".core.errors",
    "RunInfo": ".records.events",
    "Stop": ".extensions",
    "UserError": ".core.errors",
    "export_model": ".api.result",
    "load_model": ".api.result",
    "simulate": ".api.simulate",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, and no more: torch, Flower and Ray take seconds."""
    if name in _PLACES:
        return getattr(import_module(_PLACES[name], __name__), name)
    if name in __all__:  # an annex's
        return import_module(".annexes", __name__).load("public", name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
