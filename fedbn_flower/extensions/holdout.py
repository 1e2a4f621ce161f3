"""``holdout-clients``: clients that never train, and are evaluated at the end as new ones."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field as setting

from ..core.key_group import KeyGroup
from .base import Extension
from .conflict import Conflict


class HoldoutKeys(KeyGroup):
    """Evaluation"""

    after = "stop-at-target"

    holdout_clients: int = setting(
        0, ge=0, description="clients that never train and are evaluated at the end as new ones"
    )


def num_training(config: Mapping[str, Any]) -> int:
    """Return the number of clients that can train, of a configuration by key."""
    return int(config["num-clients"] - config["holdout-clients"])


class Holdout(Extension):
    """Keeps clients apart, to evaluate the model at new ones."""

    keys = HoldoutKeys

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        if num_training(config) < 1:
            most = f"at most {config['num-clients'] - 1}: one client at least is to train (num-clients)"
            yield Conflict("holdout-clients", config["holdout-clients"], most)
