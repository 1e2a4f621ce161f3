"""``recalibrate``: each site fits its scores to its validation share, and applies that to its test cases."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field as setting

from ..core.ground.columns import RECALIBRATED
from ..core.ground.wire import LOSS, RECALIBRATE
from ..core.key_group import KeyGroup
from ..records.events import RoundResult
from .base import Extension, Moment, Stop
from .conflict import Conflict

LOGGER = logging.getLogger("flwr.fedbn")


class RecalibrationKeys(KeyGroup):
    """Evaluation"""

    after = "predictions"

    recalibrate: Literal["none", "temperature", "isotonic", "threshold"] = setting(
        "none",
        description="by site, fitted on its validation share and applied to its test cases: a temperature of "
        "its logits, a monotone function of its scores, or its threshold (Youden); reported beside the plain "
        "metrics",
    )


class Recalibration(Extension):
    """Asks clients to recalibrate what they are tested on; see `runtime.at_client.site_recalibration`."""

    keys = RecalibrationKeys
    found = False
    """Whether a client has recalibrated its scores."""

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        method = config["recalibrate"]
        if method == "none":
            return
        if config["dp"] != "none":
            why = f"'none' with dp {config['dp']!r}: what is fitted to single examples would be sent"
            yield Conflict("recalibrate", method, why)
        if not config["val-fraction"]:
            yield Conflict(
                "recalibrate", method, "'none' without val-fraction: it is fitted on a validation share"
            )
        if not config["final-test"]:
            yield Conflict("recalibrate", method, "'none' with final-test false: it is applied to test cases")
        if config["eval-data"] == "global":
            why = "'none' with eval-data 'global': no site has a validation share of its own"
            yield Conflict("recalibrate", method, why)
        if config["eval-model"] == "aggregated" and not config["fraction-evaluate"]:
            yield Conflict("recalibrate", method, "'none' with fraction-evaluate 0: no client evaluates")

    def settings(self, phase: str, moment: Moment) -> Mapping[str, Any]:
        evaluates = phase == ("train" if self.run.config["eval-model"] == "local" else "evaluate")
        if self.run.config["recalibrate"] == "none" or not (moment.tests and moment.splits and evaluates):
            return {}
        return {RECALIBRATE: moment.splits}

    def after_round(self, result: RoundResult) -> Stop | None:
        self.found |= any(f"{RECALIBRATED}-{LOSS}" in metrics for metrics in result.evaluate.metrics.values())
        return None

    def check_end(self) -> None:
        if self.run.config["recalibrate"] != "none" and not self.found:
            LOGGER.warning("recalibrate: no client said what it predicts of its cases, so none has done so")
