"""``freeze``, ``train`` and ``unfreeze-at``: which parts of the model train, and from when on all do."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field as setting

from ..core.key_group import KeyGroup
from .base import Extension
from .conflict import Conflict

Patterns = Annotated[
    str, "names of modules or parameters separated by commas, with * and ? as in file names: layer1,*.bias"
]


class FreezingKeys(KeyGroup):
    """Pretrained and partly trained models"""

    after = "init-strict"

    freeze: Patterns = setting("", description="parts of the model that do not train and are never sent")
    train: Patterns = setting(
        "", description="the only parts that train, all others being frozen; empty for all"
    )
    unfreeze_at: int = setting(
        0,
        ge=0,
        description="round from which on everything that freeze or train has frozen trains; 0 for never",
    )
    frozen_bn: Literal["eval", "adapt"] = setting(
        "eval",
        description="whether frozen BatchNorm keeps its statistics, or adapts them to the data during "
        "training",
    )

    def at_round(self, server_round: int) -> Self:
        """Return the configuration of a round: from ``unfreeze-at`` on, one that freezes nothing."""
        if not 0 < self.unfreeze_at <= server_round:
            return self
        return self.model_copy(update={"freeze": "", "train": "", "unfreeze_at": 0})


class Freezing(Extension):
    """Keeps parts of the model as they are, for the whole run or for its first rounds."""

    keys = FreezingKeys

    @classmethod
    def apart(cls, config: Any) -> str:
        since = config.unfreeze_at
        return f"from round {since} on more of the model travels (unfreeze-at)" if since else ""

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        if not (since := config["unfreeze-at"]):
            return
        if not (config["freeze"] or config["train"]):
            yield Conflict("unfreeze-at", since, "0 without freeze or train")
        if not 2 <= since <= config["rounds"]:
            yield Conflict("unfreeze-at", since, f"0, or a round from 2 to {config['rounds']}")
