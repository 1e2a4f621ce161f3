"""Simulate federated learning on this machine: ``python run_sim.py --help``.

One run, or a grid of strategies x clients x objectives x seeds where a flag has a comma. Any name in
``--list`` can be swapped for another; a rule of your own needs one line in strategies/__init__.py.
"""

import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fedbn_flower.command_line import Command, parse, print_names
from fedbn_flower.comparison import Comparison
from fedbn_flower.errors import RunFailed, UserError
from fedbn_flower.federation import Federation
from fedbn_flower.progress import ProgressBar, cell_name, summary_table
from fedbn_flower.resume import load_checkpoint
from fedbn_flower.run_folder import default_run_folder, prepare_run_folder, run_folder_locked
from fedbn_flower.runtime.ray_grid import RayPool
from fedbn_flower.simulation import check_simulation, simulate

FAILED, MISTAKE, INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str]) -> int:
    """Run the command line; its exit status."""
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
    except KeyboardInterrupt:
        print("interrupted; what was done so far is in the run folder", file=sys.stderr)
        return INTERRUPTED


def run(command: Command, console: Console) -> int:
    """Run every cell; 0 if all went well."""
    first = command.configs[0]
    logging.getLogger("flwr").setLevel(logging.INFO if first.verbose else logging.WARNING)
    folder = default_run_folder() if first.run_dir == "auto" else Path(first.run_dir)
    for config in command.configs:  # every mistake is told before anything starts
        check_simulation(config)
        Federation(config)
    if first.resume:
        with run_folder_locked(first, folder):
            load_checkpoint(first, clients_here=True)
    else:
        prepare_run_folder(folder)
    grid = Comparison(folder) if len(command.configs) > 1 else None
    status = 0
    pool = RayPool(first.workers, first.verbose, first.ray_address) if first.backend == "ray" else None
    try:
        for config in command.configs:
            try:
                with ProgressBar(config, console) as bar:
                    place = folder / cell_name(config) if grid else folder
                    summary = simulate(Federation(config), place, pool, [bar])
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
    console.print(f"results are in {folder}")
    return status


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill is a Ctrl-C
    sys.exit(main(sys.argv[1:]))
