"""What a rule can see of a privacy wrapper of Flower's around it, and says of it in the log."""

import inspect
from typing import TYPE_CHECKING

from flwr.serverapp.strategy import Strategy

from .messages.validation import LOGGER

if TYPE_CHECKING:
    from .rule import ServerRule


def warn_of_wrapper(rule: "ServerRule") -> None:
    """Log what the rule lacks for a wrapper that called it to protect as it says; call it from `summary`."""
    wrapper = _wrapper_of(rule)
    if wrapper is None:
        return
    clients: int = wrapper.num_sampled_clients  # type: ignore[attr-defined]
    lacks = {
        "weighted_by_key=None (the noise is for clients that count alike)": rule.weighted_by_key is not None,
        f"min_replies={clients} (of fewer answers each counts more, under the same noise)": (
            rule._min_replies_ < clients
        ),
        "no seed (who knows it knows who is sampled)": rule._seed_ is not None,
    }
    if any(lacks.values()):
        wanted = ", ".join(want for want, lacking in lacks.items() if lacking)
        names = (type(wrapper).__name__, type(rule).__name__)
        LOGGER.warning("%s protects less than it says around %s, which should have %s", *names, wanted)


def _wrapper_of(rule: "ServerRule") -> Strategy | None:
    """The strategy among the callers that adds noise to what this rule gives: nothing else tells of it."""
    frame = inspect.currentframe()
    while frame:
        caller = frame.f_locals.get("self")
        if isinstance(caller, Strategy) and getattr(caller, "strategy", None) is rule:
            return caller if hasattr(caller, "num_sampled_clients") else None
        frame = frame.f_back
    return None
