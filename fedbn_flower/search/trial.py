"""One trial of a search: a run that is watched by round."""

import json
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import RunFailed
from ..federation.federation import Federation
from ..records.events import Observer, RoundResult
from ..results.checkpoints.checkpoint_folder import CheckpointFolder
from ..results.run_reader import rows_of
from ..runtime.simulation import simulate
from .search_folder import COMPLETE, FAILED, PRUNED

if TYPE_CHECKING:
    from optuna.trial import Trial

    from ..config.run_config import RunConfig
    from ..runtime.ray.pool import RayPool


def figure(figures: Mapping[str, object], name: str) -> float | None:
    """A round's figure: the clients' mean over held-out examples, else the global model's; None without
    a finite one."""
    found = figures.get(name)
    found = figures.get(f"global-{name}") if found in (None, "") else found
    value = math.nan if found in (None, "") else float(str(found))
    return value if math.isfinite(value) else None


def figures_by_round(place: Path, name: str, last_round: int) -> dict[int, float]:
    """The `figure` of every round that a run's folder tells of, up to the last."""
    rounds = {int(row["round"]): figure(row, name) for row in rows_of(place / "metrics.csv")}
    return {number: value for number, value in rounds.items() if value is not None and number <= last_round}


class _Pruned(Exception):
    pass


class Watch(Observer):
    """Reports a run's figures by round, and ends it when it is not worth going on with."""

    def __init__(self, trial: "Trial", name: str, rounds: int, tell: Callable[[int], None]) -> None:
        self.trial = trial
        self.name = name
        self.rounds = rounds
        self.tell = tell
        self.by_round: dict[int, float] = {}

    def on_round(self, result: RoundResult) -> None:
        self.saw(result.server_round, figure(result.figures, self.name))
        self.tell(result.server_round)

    def saw(self, server_round: int, value: float | None) -> None:
        """A round's figure."""
        if value is None:
            return
        self.by_round[server_round] = value
        self.trial.report(value, server_round)
        if server_round < self.rounds and self.trial.should_prune():
            raise _Pruned


@dataclass(frozen=True)
class Outcome:
    """What a trial came to: its state, in words what went wrong, its rounds, seconds and figure."""

    state: str
    problem: str = ""
    rounds: int | str = ""
    seconds: float | str = ""
    value: float | None = None


def rounds_done(place: Path) -> int:
    """How many rounds a run has behind it, by its last checkpoint; 0 if it has none that it could go on from.

    What it could not is removed.
    """
    checkpoint = CheckpointFolder(place / "checkpoint").load()
    if checkpoint and checkpoint.updates and (place / "summary.json").exists():
        return checkpoint.server_round
    shutil.rmtree(place, ignore_errors=True)
    return 0


def run_trial(config: "RunConfig", pool: "RayPool | None", watch: Watch) -> Outcome:
    """Run a trial in its folder, or go on with it.

    Raises
    ------
    UserError
        When its folder cannot be written to.
    """
    place = Path(config.run_dir)
    done = rounds_done(place)
    state, problem = COMPLETE, ""
    try:
        if done:
            for server_round, value in figures_by_round(place, watch.name, done).items():
                watch.saw(server_round, value)
        run_to_its_end(config, done, pool, watch)
    except _Pruned:
        state = PRUNED
    except RunFailed as error:
        return Outcome(FAILED, str(error))
    summary = json.loads((place / "summary.json").read_text())
    last = summary.get("best-round") or summary["rounds"]
    if state == COMPLETE and last not in watch.by_round:
        state, problem = FAILED, f"round {last} has no finite {watch.name} on the validation share"
    final = watch.by_round.get(last) if state == COMPLETE else None
    return Outcome(state, problem, summary["rounds"], summary["seconds"], final)


def run_to_its_end(config: "RunConfig", done: int, pool: "RayPool | None", *observers: Observer) -> None:
    """Do the rounds that a run has left, if any, in its folder."""
    place = Path(config.run_dir)
    if done:
        summary = json.loads((place / "summary.json").read_text())
        if done >= config.rounds or summary.get("stopped"):
            return
        config = config.model_copy(update={"resume": str(place)})
    simulate(Federation(config), place, pool, observers)
