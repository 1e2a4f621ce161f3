"""Warn when one of Flower's differential-privacy wrappers surrounds a rule with unsuitable settings."""

import inspect
from typing import TYPE_CHECKING

from flwr.serverapp.strategy import Strategy

from .messages.validation import LOGGER

if TYPE_CHECKING:
    from .rule import ServerRule


def warn_of_wrapper(rule: "ServerRule") -> None:
    """Log the settings that the calling wrapper's privacy guarantee needs. Call it from `summary`."""
    wrapper = _wrapper_of(rule)
    if wrapper is None:
        return
    clients: int = wrapper.num_sampled_clients  # type: ignore[attr-defined]
    missing = {
        "weighted_by_key=None (the noise is for clients of equal weight)": rule.weighted_by_key is not None,
        f"min_replies={clients} (with fewer answers each weighs more, under the same noise)": (
            rule._min_replies_ < clients
        ),
        "seed=None (whoever knows a seed knows the sampled clients)": rule._seed_ is not None,
    }
    if any(missing.values()):
        wanted = ", ".join(setting for setting, needed in missing.items() if needed)
        names = (type(wrapper).__name__, type(rule).__name__)
        LOGGER.warning("%s protects less than it states around %s; set %s", *names, wanted)


def _wrapper_of(rule: "ServerRule") -> Strategy | None:
    """Find the wrapper among the callers: the rule has no other reference to it."""
    frame = inspect.currentframe()
    while frame:
        caller = frame.f_locals.get("self")
        if isinstance(caller, Strategy) and getattr(caller, "strategy", None) is rule:
            return caller if hasattr(caller, "num_sampled_clients") else None
        frame = frame.f_back
    return None
