"""Run one trial of a search, reporting its metric by round."""

import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import RunFailed
from ..core.stored import rows_of
from ..job.checks.unused_keys import SEARCH
from ..records.events import Observer, RoundResult, deciding
from ..records.summary import SUMMARY_FILE, Summary
from ..results.checkpoints.checkpoint_folder import CheckpointFolder
from ..runtime.simulation import simulate
from ..server.federation import Federation
from .search_folder import COMPLETE, FAILED, PRUNED

if TYPE_CHECKING:
    from optuna.trial import Trial

    from ..config.run_config import RunConfig
    from ..runtime.pools import Pool


def metric_of(metrics: Mapping[str, object], name: str, by: str) -> float | None:
    """Return a metric of a round as `deciding` chooses it; None if there is no finite value."""
    found = deciding(metrics, name, by)
    value = math.nan if found is None else float(str(found))
    return value if math.isfinite(value) else None


def metrics_by_round(folder: Path, name: str, last_round: int, by: str) -> dict[int, float]:
    """Return the metric (see `metric_of`) of each round in a run's folder, up to ``last_round``."""
    rounds = {int(row["round"]): metric_of(row, name, by) for row in rows_of(folder / "metrics.csv")}
    return {number: value for number, value in rounds.items() if value is not None and number <= last_round}


class _Pruned(Exception):
    pass


class TrialObserver(Observer):
    """Reports a run's metric by round to Optuna, and stops the run if Optuna prunes the trial."""

    def __init__(
        self, trial: "Trial", name: str, rounds: int, show_round: Callable[[int], None], by: str
    ) -> None:
        self.trial = trial
        self.by = by
        self.name = name
        self.rounds = rounds
        self.show_round = show_round
        self.by_round: dict[int, float] = {}

    def on_round(self, result: RoundResult) -> None:
        self.report(result.server_round, metric_of(result.metrics, self.name, self.by))
        self.show_round(result.server_round)

    def report(self, server_round: int, value: float | None) -> None:
        """Report the metric of a round."""
        if value is None:
            return
        self.by_round[server_round] = value
        self.trial.report(value, server_round)
        if server_round < self.rounds and self.trial.should_prune():
            raise _Pruned


@dataclass(frozen=True)
class Outcome:
    """The result of a trial: its state, error message, number of rounds, seconds and metric."""

    state: str
    problem: str = ""
    rounds: int | str = ""
    seconds: float | str = ""
    value: float | None = None


def rounds_done(folder: Path) -> int:
    """Return the number of rounds in the last checkpoint of a run; 0 if the run cannot be resumed.

    The folder of a run that cannot be resumed is removed.
    """
    checkpoint = CheckpointFolder(folder / "checkpoint").load()
    if checkpoint and checkpoint.updates and (folder / SUMMARY_FILE).exists():
        return checkpoint.server_round
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def run_trial(config: "RunConfig", pool: "Pool | None", observer: TrialObserver) -> Outcome:
    """Run or resume a trial in its folder.

    Raises
    ------
    UserError
        When its folder cannot be written to.
    """
    folder = Path(config.run_dir)
    done = rounds_done(folder)
    state, problem = COMPLETE, ""
    try:
        if done:
            for server_round, value in metrics_by_round(folder, observer.name, done, observer.by).items():
                observer.report(server_round, value)
        complete_run(config, done, pool, observer)
    except _Pruned:
        state = PRUNED
    except RunFailed as error:
        return Outcome(FAILED, str(error))
    summary = Summary.read(folder, "resume") or Summary()
    last = summary.best_round or summary.rounds
    if state == COMPLETE and last not in observer.by_round:
        state, problem = FAILED, f"round {last} has no finite {observer.name} on the validation share"
    final = observer.by_round.get(last) if state == COMPLETE else None
    return Outcome(state, problem, summary.rounds, summary.seconds, final)


def complete_run(config: "RunConfig", done: int, pool: "Pool | None", *observers: Observer) -> None:
    """Do the remaining rounds of a run, if any, in its folder."""
    folder = Path(config.run_dir)
    if done:
        summary = Summary.read(folder, "resume")
        if done >= config.rounds or (summary and summary.stopped):
            return
        config = config.model_copy(update={"resume": str(folder)})
    simulate(Federation(config, SEARCH), folder, pool, observers)
