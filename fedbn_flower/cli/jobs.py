"""Run the job of a command line: one run, a sweep or a search."""

import gc
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from .. import annexes
from ..config.run_config import RunConfig
from ..core.errors import RunCutOff, RunFailed
from ..core.logs import show_log
from ..results.plotting.drawer import drawing_apart
from ..results.progress import cell_name, last_line, progress, say, show_learnt, summary_table, waiting
from ..results.rare_event import led_by_rare_event
from ..results.resume import RunToDo, resume_hint
from ..results.run_reader import Run
from ..results.terminal import show
from ..runtime.pools import check_workers, pool_for
from ..runtime.simulation import checked, compared_alike, prepared_folder, simulate
from ..server.federation import Federation
from .parser import Job, Search


def run(job: Job | Search, is_process: bool = False) -> int:
    """Run the job and return the exit status: 0 for success, 1 if a run failed.

    If ``is_process``, the garbage collector leaves alone what was imported: nothing else is in this process.

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C and SIGTERM; in a run, the message gives the results' folder and the command to resume.
    """
    if not isinstance(job, Job):
        return job()
    apart = drawing_apart() if is_process and not (job.sweep or job.dry_run) else nullcontext()
    with apart:
        return _run(job, is_process)


def _run(job: Job, is_process: bool) -> int:
    console = Console(emoji=False)
    first = job.configs[0]
    show_log(first.verbose)
    check_workers(first)
    with waiting(console, "reading data"):
        job = replace(job, configs=compared_alike(job.configs))
        learnt = checked(job.configs)  # report every error before anything starts
    if is_process:
        gc.freeze()
    if job.dry_run:
        describe_runs = annexes.load("estimates", "dry-run")
        show_learnt(learnt, console)
        for line in describe_runs(_runs(job)):
            say(console, line)
        return 0
    folder_of = annexes.load("sweeps", "folder") if job.sweep else prepared_folder
    folder = folder_of(first)
    say(console, f"results go to {folder}")
    show_learnt(learnt, console)
    try:
        if job.sweep:
            failed = bool(annexes.load("sweeps", "run")(job.sweep, job.configs, folder, console))
        else:
            failed = not _run_one(first, folder, console)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(resume_hint(folder)) from None
    say(console, last_line(folder))
    return int(failed)


def _runs(job: Job) -> Sequence[RunToDo]:
    """Return the job's runs with their folders, whether or not they exist."""
    if not job.sweep:
        return [RunToDo(cell_name(job.configs[0]), job.configs[0])]
    found: Sequence[RunToDo] = annexes.load("sweeps", "runs")(job.sweep, job.configs)
    return found


def _run_one(config: RunConfig, folder: Path, console: Console) -> bool:
    """Run one configuration and return whether it succeeded."""
    with waiting(console, "starting workers"):
        pool = pool_for(config)
    try:
        simulate(Federation(config), folder, pool, [progress(config, console)])
    except RunFailed as error:
        print(f"{cell_name(config)} failed: {error}", file=sys.stderr)
        if isinstance(error, RunCutOff):
            print(resume_hint(folder), file=sys.stderr)
        return False
    finally:
        if pool:
            pool.close()
    show(console, summary_table(config, led_by_rare_event(Run.read(folder)).summary))
    return True
