"""What would run, and about how long; nothing is written but decoded data."""

from collections.abc import Mapping, Sequence

from ..federation.federation import Federation
from .cells import Cell
from .estimate import kind_of, seconds_a_round, speed_of, work_of
from .processes import clients_in_a_round, how_many_side_by_side, may_run_side_by_side, workers_of


def told(cells: Sequence[Cell]) -> list[str]:
    """A line a run, and one with the time that those not done will take."""
    lines, missing = [], []
    for cell in cells:
        if cell.summary:
            lines.append(f"{cell.name}  done")
            continue
        done = cell.rounds_done if cell.begun else 0
        lines.append(f"{cell.name}  {done} of {cell.config.rounds} rounds done" if done else cell.name)
        missing.append((cell, cell.config.rounds - done))
    speeds = {kind_of(cell.config): cell.config for cell, _ in missing}
    found = {kind: speed_of(config) for kind, config in speeds.items()}
    seconds = {
        cell.name: rounds * seconds_a_round(work_of(Federation(cell.config)), found[kind_of(cell.config)])
        for cell, rounds in missing
    }
    runs = "1 run" if len(cells) == 1 else f"{len(cells)} runs"
    states = f"{runs}, {len(cells) - len(missing)} done" if len(missing) < len(cells) else runs
    return [*lines, f"{states}; {in_words(elapsed([cell for cell, _ in missing], seconds))} to go"]


def elapsed(cells: Sequence[Cell], seconds: Mapping[str, float]) -> float:
    """Seconds until all are done, where each alone would take so many of one core, by name."""
    if not cells:
        return 0.0
    first = cells[0].config
    times = [seconds[cell.name] for cell in cells]
    if first.backend == "inline":
        return sum(times)
    workers, clients = workers_of(cells), clients_in_a_round(cells)
    together = how_many_side_by_side(len(cells), workers, clients) if may_run_side_by_side(cells) else 0
    side_by_side = max([sum(times[:together]) / workers, *times[:together]])
    return side_by_side + sum(times[together:]) / min(workers, clients)


def in_words(seconds: float) -> str:
    """About how long, in the unit that one would say it in."""
    if seconds < 100:
        return f"about {max(1, round(seconds))} s"
    return f"about {seconds / 60:.0f} min" if seconds < 6000 else f"about {seconds / 3600:.1f} h"
