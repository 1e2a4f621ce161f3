"""``adapt-bn``: BatchNorm statistics of a client's own inputs before each evaluation."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field as setting

from ..core.ground.wire import ADAPT_BN
from ..core.key_group import KeyGroup
from .base import Extension, Moment


class AdaptBNKeys(KeyGroup):
    """Evaluation"""

    after = "fine-tune"

    adapt_bn: bool = setting(
        False,
        description="before it evaluates a model, a client estimates the BatchNorm statistics on its own "
        "training inputs, without labels (AdaBN); the result is then discarded",
    )


class AdaptBN(Extension):
    """Tells clients to evaluate with BatchNorm statistics of their own inputs, which they then forget."""

    keys = AdaptBNKeys
    paper = "li2018adabn"

    def settings(self, phase: str, moment: Moment) -> Mapping[str, Any]:
        return {ADAPT_BN: True} if self.run.config["adapt-bn"] else {}
