"""What a client does to a model before each evaluation, and then forgets: ``fine-tune``, ``adapt-bn``."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field as setting

from ..core.ground.wire import ADAPT_BN, FINE_TUNE
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


class FineTuning(Extension):
    """Tells clients how many steps they take before they evaluate a model, which they then forget."""

    def settings(self, phase: str, moment: Moment) -> Mapping[str, Any]:
        steps = self.run.config["fine-tune"]
        return {FINE_TUNE: steps} if steps else {}


class AdaptBN(Extension):
    """Tells clients to evaluate with BatchNorm statistics of their own inputs, which they then forget."""

    keys = AdaptBNKeys

    @classmethod
    def papers(cls, config: Mapping[str, Any]) -> Sequence[str]:
        return ("li2018adabn",) if config.get("adapt-bn") else ()

    def settings(self, phase: str, moment: Moment) -> Mapping[str, Any]:
        return {ADAPT_BN: True} if self.run.config["adapt-bn"] else {}
