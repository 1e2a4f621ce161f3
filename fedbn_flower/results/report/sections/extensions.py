"""What a run's extensions say of it, of what the server saw, and of who attacked."""

from collections.abc import Iterator
from itertools import chain

from ....config.help import as_text
from ....core.ground.columns import HONEST
from ....extensions import built_in
from ....records.metrics import shown
from ...run_reader import Run
from ..html import key_values, paragraph


def extensions(run: Run) -> Iterator[str]:
    """Yield what the run's extensions say of it, but those of `what_the_server_saw`."""
    seen = _seen(run)
    for name, found in run.summary.extensions.items():
        if seen.get(name):
            continue
        rounded = ((key, f"{v:.6g}" if isinstance(v, float) else as_text(v)) for key, v in found.items())
        yield key_values({f"{name}, {key}": value for key, value in rounded})


def what_the_server_saw(run: Run) -> Iterator[str]:
    """Yield what extensions say that a server saw."""
    yield from map(paragraph, chain(*_seen(run).values()))


def _seen(run: Run) -> dict[str, list[str]]:
    """Return what built-in extensions say that a server saw, by their names."""
    found, every = run.summary.extensions, {cls.__name__.lower(): cls for cls in built_in(run.config)}
    return {name: list(cls.seen(found[name])) for name, cls in every.items() if found.get(name)}


def attack(run: Run) -> Iterator[str]:
    """Yield what is known of a run's attack; nothing of a run without one."""
    found = run.summary.attack
    if not found:
        return
    metric = run.main_metric
    honest = run.points(f"{HONEST}{metric}")
    values = {
        "Attack": str(found.get("name")),
        "Attackers": ", ".join(map(str, found.get("attackers", ()))),
        "Their answers that were used": str(found.get("answers")),
    }
    if honest:
        values[f"Mean {metric} of honest clients in round {max(honest)}"] = shown(metric, honest[max(honest)])
    if (success := found.get("success")) is not None:
        values["Success of the backdoor"] = shown("accuracy", float(success))
    yield key_values(values)
    yield paragraph(
        "Attackers train and evaluate like the others, and count in the means over clients. The success is "
        "the share of patched test examples of other classes that honest clients take for the target.",
        "note",
    )
