"""``predictions``: what the kept model says of each held-out case."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field as setting

from ..core.ground.wire import CASES
from ..core.key_group import KeyGroup
from ..core.syntax import SUBGROUPS
from ..records.events import RunInfo
from .base import Extension, Moment
from .conflict import Conflict

MOST_SCORES = 1_000_000
"""How many scores a run keeps unless it is told to keep all."""


class PredictionsKeys(KeyGroup):
    """Evaluation"""

    after = "final-test"

    predictions: Literal["auto", "on", "off"] = setting(
        "auto",
        description="write predictions.parquet, a row for each held-out case; auto does up to "
        f"{MOST_SCORES:,} scores, more with subgroups, and none with dp",
    )
    subgroups: Annotated[str, SUBGROUPS] = setting(
        "",
        description="columns of a table by whose values held-out cases have metrics of their own, such as "
        "sex,age>=65; whether they are inputs does not change",
    )


class Predictions(Extension):
    """Asks clients for the cases of the last evaluation, of the split that the summary is of.

    Simulated clients send them. A site writes them to its ``state-dir`` if its node config says so, and
    sends nothing; see `runtime.at_client.site_cases`.

    Parameters
    ----------
    run : RunInfo
        The run.
    kept : bool
        Whether the run keeps its predictions.
    """

    keys = PredictionsKeys

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
