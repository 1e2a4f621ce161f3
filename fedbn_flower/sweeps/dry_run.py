"""Describe a job without running it: its runs and about how long they take. Only decoded data are written."""

from collections.abc import Mapping, Sequence

from ..server.federation import Federation
from .cells import Cell
from .estimate import kind_of, seconds_a_round, speed_of, work_of
from .processes import clients_in_a_round, side_by_side, workers_of


def describe_runs(cells: Sequence[Cell]) -> list[str]:
    """Return a line per run, what tells of keys that nothing reads, and an estimate of the remaining time."""
    lines, remaining = [], []
    for cell in cells:
        if cell.summary:
            lines.append(f"{cell.name}  done")
            continue
        done = cell.rounds_done if cell.started else 0
        lines.append(f"{cell.name}  {done} of {cell.config.rounds} rounds done" if done else cell.name)
        remaining.append((cell, cell.config.rounds - done))
    speeds = {kind_of(cell.config): cell.config for cell, _ in remaining}
    measured = {kind: speed_of(config) for kind, config in speeds.items()}
    seconds, unused = {}, dict[str, None]()
    for cell, rounds in remaining:
        federation = Federation(cell.config)
        seconds[cell.name] = rounds * seconds_a_round(work_of(federation), measured[kind_of(cell.config)])
        unused |= {federation.unused_line: None} if federation.unused_line else {}
    runs = "1 run" if len(cells) == 1 else f"{len(cells)} runs"
    states = f"{runs}, {len(cells) - len(remaining)} done" if len(remaining) < len(cells) else runs
    return [*lines, *unused, f"{states}; {in_words(elapsed([cell for cell, _ in remaining], seconds))} to go"]


def elapsed(cells: Sequence[Cell], seconds: Mapping[str, float]) -> float:
    """Estimate the seconds until all cells are done from each one's seconds on one core, by name."""
    if not cells:
        return 0.0
    first = cells[0].config
    times = [seconds[cell.name] for cell in cells]
    if first.backend == "inline":
        return sum(times)
    workers, clients = workers_of(cells), clients_in_a_round(cells)
    parallel = side_by_side(cells)
    in_parallel = max([sum(times[:parallel]) / workers, *times[:parallel]])
    return in_parallel + sum(times[parallel:]) / min(workers, clients)


def in_words(seconds: float) -> str:
    """Return a rounded duration in seconds, minutes or hours."""
    if seconds < 100:
        return f"about {max(1, round(seconds))} s"
    return f"about {seconds / 60:.0f} min" if seconds < 6000 else f"about {seconds / 3600:.1f} h"
