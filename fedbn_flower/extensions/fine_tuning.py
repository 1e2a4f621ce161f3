"""``fine-tune``: steps on a client's own examples before each evaluation."""

from collections.abc import Mapping
from typing import Any

from ..core.ground.wire import FINE_TUNE
from .base import Extension, Moment


class FineTuning(Extension):
    """Tells clients how many steps they take before they evaluate a model, which they then forget."""

    def settings(self, phase: str, moment: Moment) -> Mapping[str, Any]:
        steps = self.run.config["fine-tune"]
        return {FINE_TUNE: steps} if steps else {}
