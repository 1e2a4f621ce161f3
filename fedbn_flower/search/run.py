"""Run a search: its trials one by one, then a run with the best values."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from ..core.errors import RunFailed, not_allowed
from ..core.logs import notices_once, show_log
from ..core.stored import CONFIG
from ..core.text import command, number_of
from ..job.checks.notices import rare_by_accuracy
from ..records.metrics import shown
from ..records.summary import Summary
from ..results import report
from ..results.manifest import read_configuration
from ..results.progress import last_line, progress, say, show_learnt, summary_table, waiting
from ..results.rare_event import led_by_rare_event
from ..results.run_directory import folder_locked
from ..results.run_reader import Run
from ..results.terminal import show
from ..runtime.pools import check_workers, pool_for
from ..runtime.simulation import checked, compared_alike
from ..server.federation import Federation
from .search import Search
from .search_folder import (
    COMPLETE,
    FAILED,
    TrialTable,
    check_same_search,
    prepare_search_folder,
    write_search,
)
from .study import WARM_UP, Study, warm_up_rounds
from .trial import Outcome, TrialObserver, complete_run, metrics_by_round, rounds_done, run_trial

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..runtime.pools import Pool

UNTESTED: dict[str, bool | str] = {"final_test": False, "recalibrate": "none"}
"""Keys of a trial: it uses nothing of the test set, and so has nothing to recalibrate."""


def run_search(search: Search) -> int:
    """Do the remaining trials of a search, then the run with the best values.

    Return the exit status: 0, or 1 if every trial or the last run failed.

    Raises
    ------
    UserError
        For a mistake in the configuration, before anything starts.
    KeyboardInterrupt
        On Ctrl-C and SIGTERM; its message says how to resume.
    """
    console = Console(emoji=False)
    configs = search.configs()
    first = configs[0]
    show_log(first.verbose)
    check_workers(first)
    with waiting(console, "reading data"):  # report mistakes before anything starts
        for config in configs:
            if config.dp != "none":
                wanted = "'none' with a search: clients' metrics would decide what is published"
                raise not_allowed("dp", config.dp, wanted)
        if any(one.eval_data == "local" for one in compared_alike(configs)):
            search = replace(search, values={**search.values, "eval-data": "local"})
        learnt = checked(search.configs())
    description = search.description()
    folder = prepare_search_folder(first.run_dir, description)
    with folder_locked(folder, "run-dir"):
        stored = check_same_search(folder, description)
        write_search(folder, {**description, "best": stored["best"]})
        say(console, f"results go to {folder}")
        show_learnt(learnt, console)
        if search.note:
            say(console, search.note)
        try:
            with notices_once():
                return _SearchRunner(search, folder, first, description, console).run()
        except KeyboardInterrupt:
            again = command(["--resume", str(folder)])
            message = f"interrupted; what was done so far is in {folder}; to go on with it: {again}"
            raise KeyboardInterrupt(message) from None


class _SearchRunner:
    """Runs a search in its folder."""

    def __init__(
        self,
        search: Search,
        folder: Path,
        first: "RunConfig",
        description: dict[str, Any],
        console: Console,
    ) -> None:
        self.search = search
        self.folder = folder
        self.description = description
        self.console = console
        self.first = first
        federation = Federation(first)
        problem, self.decide_by = federation.problem, federation.decide_by
        self.by = problem.compared_by
        self.doubt = rare_by_accuracy(federation.inputs, "trials are compared", "compares them")
        self.higher = self.by in problem.higher_is_better
        self.table = TrialTable(folder, [dimension.key for dimension in search.space])
        self.study = Study(search.space, first.seed, first.rounds, self.higher)
        for row in self.table.rows:
            self._add_earlier_trial(row)

    def run(self) -> int:
        start = f"from round {warm_up_rounds(self.first.rounds) + 1} on, after {WARM_UP} complete trials"
        if self.doubt:
            say(self.console, self.doubt)
        say(self.console, f"trials that are worse than the median of the others are pruned {start}")
        pool = pool_for(self.first, self.search.trials - len(self.table.rows) + 1)
        try:
            for number in range(len(self.table.rows), self.search.trials):
                self._run_trial(number, pool)
            best = self.table.best(self.higher)
            show(self.console, self._terminal_table())
            if best is None:
                print("every trial failed", file=sys.stderr)
                return 1
            return self._run_best(best, pool)
        finally:
            if pool:
                pool.close()
            if self.table.rows:
                report.write_report(self.folder)

    def _add_earlier_trial(self, row: dict[str, str]) -> None:
        """Add a trial from the table to the study."""
        value = float(row["value"]) if row["value"] else None
        by_round: dict[int, float] = {}
        if row["state"] != FAILED:
            by_round = metrics_by_round(
                self.folder / row["folder"], self.by, int(row["rounds"]), self.decide_by
            )
        self.study.add(self._values(row), row["state"], value, by_round)

    def _values(self, row: dict[str, str]) -> dict[str, Any]:
        return {dimension.key: dimension.parse(row[dimension.key]) for dimension in self.search.space}

    def _run_trial(self, number: int, pool: "Pool | None") -> None:
        trial = self.study.ask(number)
        folder = f"trials/{number}"
        config = self.search.config(trial.params, run_dir=str(self.folder / folder), **UNTESTED)
        title = f"trial {number} of {self.search.trials}: {_in_words(trial.params)}"
        with self.console.status(title) as status:

            def show_round(server_round: int) -> None:
                status.update(f"{title}  round {server_round}/{config.rounds}")

            observer = TrialObserver(trial, self.by, config.rounds, show_round, self.decide_by)
            outcome = run_trial(config, pool, observer)
        value = outcome.value
        self.study.tell(trial, outcome.state, value)
        self.table.add(
            {
                "trial": number,
                "state": outcome.state,
                "rounds": outcome.rounds,
                "seconds": outcome.seconds,
                "value": "" if value is None else value,
                **trial.params,
                "folder": folder,
            }
        )
        self._print_outcome(title, outcome)

    def _print_outcome(self, title: str, outcome: Outcome) -> None:
        if outcome.state == FAILED:
            print(f"{title} failed: {outcome.problem}", file=sys.stderr)
            return
        result = f"{self.by} {shown(self.by, outcome.value)}" if outcome.state == COMPLETE else "pruned"
        rounds = number_of(int(outcome.rounds), "round")
        say(self.console, f"{title}  {result} after {rounds}  {outcome.seconds:.1f} s")

    def _run_best(self, best: dict[str, str], pool: "Pool | None") -> int:
        """Do the run with the best values, the only one that uses the test set; resume it if it exists."""
        values, folder = self._values(best), self.folder / "best"
        config = self.search.config(values, run_dir=str(folder))
        if (folder / CONFIG).exists():
            stored, wanted = read_configuration(folder), config.to_user_config()
            if any(stored[key] != wanted[key] for key in values):
                shutil.rmtree(folder)
        try:
            complete_run(config, rounds_done(folder), pool, progress(config, self.console))
        except RunFailed as error:
            print(f"the run with the best values failed: {error}", file=sys.stderr)
            return 1
        summary = Summary.read(folder, "resume") or Summary()
        again = command(self.search.arguments(values))
        test = summary.main.get(self.by) if config.final_test else None
        found = {
            **{"trial": int(best["trial"]), "values": values, "compared-by": self.by},
            **{"value": float(best["value"]), "test": test, "command": again, "folder": "best"},
        }
        write_search(self.folder, {**self.description, "best": found})
        show(self.console, summary_table(config, led_by_rare_event(Run.read(folder)).summary))
        say(self.console, f"best: trial {best['trial']}, {_in_words(values)}")
        say(self.console, f"its {self.by} on the validation share: {shown(self.by, float(best['value']))}")
        if test is not None:
            once = "" if config.may_end_early else ", used this once"
            say(self.console, f"its {self.by} on the test set{once}: {shown(self.by, test)}")
        say(self.console, f"its command: {again}")
        say(self.console, last_line(self.folder))
        return 0

    def _terminal_table(self) -> Table:
        """Return the table of the trials for the terminal."""
        keys = [dimension.key for dimension in self.search.space]
        table = Table(title=f"{self.by} on the validation share")
        for column in ("trial", *keys, "rounds", "state", self.by):
            table.add_column(column, justify="right")
        for row in self.table.rows:
            value = shown(self.by, float(row["value"])) if row["value"] else ""
            values = [_short(value) for value in self._values(row).values()]
            table.add_row(row["trial"], *values, row["rounds"], row["state"], value)
        return table


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _in_words(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} {_short(value)}" for key, value in values.items())
