"""What clients do in addition to an evaluation.

``fine-tune`` and ``adapt-bn`` change a model that is then discarded; ``recalibrate``: each site recalibrates
scores on its validation share, and applies that to its test cases; ``predictions``: the kept model's scores
of each held-out case.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from ..core.errors import Conflict
from ..core.ground.columns import RECALIBRATED
from ..core.ground.settings import KeyGroup, form, setting
from ..core.ground.wire import ADAPT_BN, CASES, FINE_TUNE, LOSS, RECALIBRATE
from ..core.text import SUBGROUPS
from ..data.splits.subgroups import attributes_of
from ..records.events import RoundResult, RunInfo
from .base import Moment, ServerHook
from .declared import About


class AdaptBNKeys(KeyGroup):
    """Evaluation"""

    after = "fine-tune"

    adapt_bn: bool = setting(
        False,
        description="before it evaluates a model, a client estimates the BatchNorm statistics on its own "
        "training inputs, without labels (AdaBN); the result is then discarded",
    )


class FineTuning(ServerHook):
    """Has clients fine-tune a model for some steps before they evaluate it, and then discard it."""

    place = 130

    def settings(self, phase: str, moment: Moment) -> Mapping[str, Any]:
        steps = self.run.config["fine-tune"]
        return {FINE_TUNE: steps} if steps else {}


class AdaptBN(ServerHook):
    """Has clients evaluate with BatchNorm statistics of their own inputs, which are then discarded."""

    place = 140

    @classmethod
    def about(cls, config: Mapping[str, Any]) -> About:
        return About(("li2018adabn",) if config["adapt-bn"] else ())

    def settings(self, phase: str, moment: Moment) -> Mapping[str, Any]:
        return {ADAPT_BN: True} if self.run.config["adapt-bn"] else {}


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


class Recalibration(ServerHook):
    """Asks clients to recalibrate their test scores; see `study.recalibration`."""

    place = 160
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

    def after_round(self, result: RoundResult) -> None:
        self.found |= any(f"{RECALIBRATED}-{LOSS}" in metrics for metrics in result.evaluate.metrics.values())

    def on_end(self, summary: Mapping[str, Any] | None, error: BaseException | None) -> None:
        if self.run.config["recalibrate"] != "none" and not (self.found or error):
            LOGGER.warning("recalibrate: no client said what it predicts of its cases, so none has done so")


MOST_SCORES = 1_000_000
"""The most scores that a run keeps by default."""


class PredictionsKeys(KeyGroup):
    """Evaluation"""

    after = "final-test"

    predictions: Literal["auto", "on", "off"] = setting(
        "auto",
        description="write predictions.parquet, a row for each held-out case; auto does up to "
        f"{MOST_SCORES:,} scores, more with subgroups, and none with dp",
    )
    subgroups: Annotated[str, SUBGROUPS, form(attributes_of)] = setting(
        "",
        description="columns of a table by whose values held-out cases have metrics of their own, such as "
        "sex,age>=65; whether they are inputs does not change",
    )


class Predictions(ServerHook):
    """Asks clients for the cases of the last evaluation, on the split that the summary reports.

    Simulated clients send them. A site writes them to its ``state-dir`` if its node config says so, and
    sends nothing; see `site.cases`.

    Parameters
    ----------
    run : RunInfo
        The run.
    kept : bool
        Whether the run keeps its predictions.
    """

    place = 150

    def __init__(self, run: RunInfo, kept: bool) -> None:
        super().__init__(run)
        self.kept = kept

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        if config["predictions"] == "on" and config["dp"] != "none":
            why = f"'auto' or 'off' with dp {config['dp']!r}: scores tell of single examples"
            yield Conflict("predictions", "on", why)
        if config["subgroups"] and config["dp"] != "none":
            why = f"none with dp {config['dp']!r}: metrics by subgroup tell of single examples, without noise"
            yield Conflict("subgroups", config["subgroups"], why)
        if config["subgroups"] and config["predictions"] == "off":
            yield Conflict(
                "predictions", "off", "'auto' or 'on' with subgroups, whose metrics are of single cases"
            )

    def settings(self, phase: str, moment: Moment) -> Mapping[str, Any]:
        evaluates = phase == ("train" if self.run.config["eval-model"] == "local" else "evaluate")
        if not (self.kept and moment.tests and moment.splits and evaluates):
            return {}
        return {CASES: moment.splits.split(",")[-1]}
