"""The section of a report that says who attacked, by what, and with which success."""

from collections.abc import Iterator

from ....core.ground.columns import HONEST
from ....records.metrics import shown
from ...run_reader import Run
from ..html import key_values, paragraph


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
