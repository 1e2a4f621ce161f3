"""The command ``run_sim.py``, or ``fedbn-sim``: one run, or a grid of them."""

import logging
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from .algorithms import REGISTRIES
from .arguments import Command, parse
from .data.partition_spec import PartitionSpec
from .errors import RunFailed, UserError
from .flags import first_line
from .models import MODEL
from .results.comparison import Comparison
from .results.progress import cell_name, progress, summary_table
from .rounds import Federation
from .simulation import check_simulation, prepared_folder, ray_pool, simulate

FAILED, MISTAKE, INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default this process's own; its exit status."""
    if arguments is None:
        arguments = sys.argv[1:]
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill is a Ctrl-C
    console = Console()
    try:
        command = parse(arguments)
        if command.show_names:
            print_names(console)
            return 0
        return run(command, console)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return MISTAKE
    except KeyboardInterrupt as interrupt:
        print(str(interrupt) or "interrupted before the first round", file=sys.stderr)
        return INTERRUPTED


def run(command: Command, console: Console) -> int:
    """Run every cell; 0 if all went well.

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C and SIGTERM; in a run, its message says where the run is and how to go on with it.
    """
    first = command.configs[0]
    logging.getLogger("flwr").setLevel(logging.INFO if first.verbose else logging.WARNING)
    for config in command.configs:  # every mistake is told before anything starts
        check_simulation(config)
        Federation(config)
    folder = prepared_folder(first)
    _say(console, f"results go to {folder}")
    grid = Comparison(folder) if len(command.configs) > 1 else None
    status = 0
    pool = ray_pool(first)
    try:
        for config in command.configs:
            place = folder / cell_name(config) if grid else folder
            try:
                with progress(config, console) as watch:
                    summary = simulate(Federation(config), place, pool, [watch])
            except KeyboardInterrupt:
                raise KeyboardInterrupt(_interrupted(place)) from None
            except RunFailed as error:
                print(f"{cell_name(config)} failed: {error}", file=sys.stderr)
                status = FAILED
                if grid:
                    grid.add(config, None, str(error))
                continue
            if grid:
                grid.add(config, summary)
            else:
                console.print(summary_table(config, summary))
    finally:
        if pool:
            pool.close()
        if grid:
            grid.plot()
    if grid:
        console.print(grid.table())
    _say(console, f"results are in {folder}")
    return status


def _interrupted(place: Path) -> str:
    """Where a run is that was stopped, and the command that goes on with it; empty before it has begun."""
    if not (place / "config.json").exists():
        return ""
    program = ["python", sys.argv[0]] if sys.argv[0].endswith(".py") else [Path(sys.argv[0]).name]
    command = shlex.join([*program, "--resume", str(place)])
    return f"interrupted; what was done so far is in {place}; to go on with it: {command}"


def _say(console: Console, line: str) -> None:
    console.print(line, soft_wrap=True, highlight=False, markup=False)


def print_names(console: Console) -> None:
    """Every name that can be asked for, with a line on each algorithm."""
    rows = [
        (registry.key, name, first_line(algorithm).replace("``", ""))
        for registry in (*REGISTRIES, MODEL)
        for name, algorithm in registry.names.items()
    ]
    lines = [f"{key:<10} {name:<12} {words}" for key, name, words in rows]
    lines.append("dataset    digits (embedded), a local folder, or any Hugging Face name")
    lines.append(f"partition  {PartitionSpec.FORMS}")
    _say(console, "\n".join(lines))
