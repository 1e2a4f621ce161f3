"""What ``summary.json`` says of a run, with the names that docs/run-folder.md explains."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from ..core.errors import UserError
from ..core.stored import json_object, seen

SUMMARY_FILE = "summary.json"
JAIN = "client-jain"
"""The key of Jain's index of the clients' metrics: of each metric a number from 1/n to 1, with no unit."""

TESTED_ON = {
    "local": "each client is evaluated on its own held-out examples",
    "global": "each client is evaluated on all held-out examples",
}
"""What ``eval-data`` means, where results stand."""

Figures = Mapping[str, int | float | None]
"""Metrics by name; None where a metric is undefined."""
OfClient = Mapping[str, Any]
"""The same of a client, with ``num-examples`` and, where the data have names, ``name``."""
NOTE, CALIBRATION = "note", "calibration"
"""Keys in `Summary.intervals`: a sentence, which are missing and why; a test in place of that of the ECE."""


def key_of(field: str) -> str:
    """Return a field's name in the file; ``global`` is a word of Python, and has an underscore there."""
    return field.rstrip("_").replace("_", "-")


class Part(BaseModel):
    """A part of the summary. What a file lacks has its default; what later versions add is kept."""

    model_config = ConfigDict(frozen=True, extra="allow", alias_generator=key_of, populate_by_name=True)

    def as_json(self) -> dict[str, Any]:
        """Return what was given of it, as the file has it."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class Seconds(Part):
    """The seconds of a run, split by who worked."""

    train: float = 0.0
    evaluate: float = 0.0
    server: float = 0.0


class RoundsToTarget(Part):
    """The first round that reached the target, by whose metric; None if none did."""

    metric: str | None = None
    """None up to version 0.2: the metric by which runs are compared."""
    target: float
    mean: int | None = None
    global_: int | None = None


class CostsToTarget(Part):
    """What the run had cost by the end of that round: ``bytes``, and seconds where they mean something."""

    mean: Figures | None = None
    global_: Figures | None = None


class OfClasses(Part):
    """The accuracy on each class, and the distinct examples it is of; None without examples."""

    names: Sequence[str] = ()
    examples: Sequence[int] = ()
    accuracy: Sequence[float | None] = ()


class NewClients(Part):
    """The metrics of the clients that did not train."""

    pooled: Figures | None = None
    mean: Figures | None = None
    client_mean: Figures | None = None
    clients: Mapping[str, OfClient] = {}
    intervals: Mapping[str, Any] | None = None
    """As those of the summary."""


class Recalibrated(NewClients):
    """The metrics of the clients' recalibrated scores."""

    method: str = ""


class CrossFitted(NewClients):
    """The metrics of the held-out cases, each of the round that the other half of them chose."""

    by: str = ""
    """The metric by which rounds were chosen."""
    rounds: Mapping[str, int] = {}
    """The round that each half chose."""


class RunFigures(Part):
    """What of the summary is of the run as a whole."""

    rounds: int = 0
    """0 where there is no summary: the run stopped before its first checkpoint."""
    seconds: float = 0.0
    seconds_per_round: float | None = None
    seconds_split: Seconds | None = None
    simulated_seconds: float | None = None
    bytes_sent: int | None = None
    bytes_received: int | None = None
    client_updates_per_second: float | None = None
    rounds_to_target: RoundsToTarget | None = None
    costs_to_target: CostsToTarget | None = None
    privacy: Mapping[str, Any] | None = None
    attack: Mapping[str, Any] | None = None
    """Which attack there was, by whom, how often, and its success; none in a run without."""
    best_round: int | None = None
    cross_fitted: CrossFitted | None = None
    """With ``best cross-fitted``."""
    extensions: Mapping[str, Mapping[str, Any]] = {}
    """What the run's own extensions say, by name."""
    stopped: str | None = None
    """Why no further round is to follow; see `RunTotals`."""
    normalization: Mapping[str, Sequence[float]] | None = None
    runtime: Sequence[Mapping[str, Any]] = ()


SINGLE_CASES, PIXELS = "single held-out cases", "all pixels of the held-out masks"
OVER = {
    "global": "the server's model, on all held-out cases",
    "pooled": "all clients' held-out cases in one place",
    "mean": "the clients' values, weighted by their held-out cases",
    "client-mean": "the clients' values, all with the same weight",
    "worst-client": "the client with the worst value",
    "worst-tenth": "the mean of the tenth of clients with the worst values",
    "client-std": "the standard deviation of the clients' values",
    JAIN: "Jain's index of the clients' values",
    "clients": "each client's own held-out cases, or all of them with eval-data global",
}
"""What the metrics of a round are over, by key."""


class RoundFigures(Part):
    """What of the summary is of one round: the last one or, with patience, the best."""

    of: Mapping[str, str] = {}
    """What each metric is computed from: single cases, or counts at fixed thresholds. Not in versions up to
    0.2."""
    over: Mapping[str, str] = {}
    """Whose metrics the other fields have, by key."""
    global_: Figures | None = None
    mean: Figures | None = None
    aggregated: Figures | None = None
    """Of a Flower app: what its strategy made of its clients' metrics."""
    pooled: Figures | None = None
    client_mean: Figures | None = None
    worst_client: Figures | None = None
    worst_tenth: Figures | None = None
    client_std: Figures | None = None
    client_jain: Figures | None = None
    clients: Mapping[str, OfClient] = {}
    per_class: OfClasses | None = None
    global_per_class: OfClasses | None = None
    new_clients: NewClients | None = None
    new_clients_as_received: NewClients | None = None
    """The same without BatchNorm statistics of their own, with ``leave-one-site-out``."""
    recalibrated: Recalibrated | None = None
    """With ``recalibrate``: of the test cases, with scores that each client has recalibrated."""

    @property
    def left_out(self) -> NewClients | None:
        """The metrics of the client that ``leave-one-site-out`` left out; None of other runs."""
        return self.new_clients if self.new_clients_as_received else None

    @property
    def by_group(self) -> dict[str, Figures]:
        """The metrics that there are, by the key of whose they are."""
        found = {
            "global": self.global_,
            "pooled": self.pooled,
            "mean": self.mean,
            "aggregated": self.aggregated,
            "client-mean": self.client_mean,
            "worst-client": self.worst_client,
            "worst-tenth": self.worst_tenth,
            "client-std": self.client_std,
            JAIN: self.client_jain,
        }
        return {group: figures for group, figures in found.items() if figures}

    @property
    def main(self) -> Figures:
        """The clients' means over examples, else the global model's metrics; empty without either."""
        return self.mean or self.aggregated or self.global_ or {}


class Summary(RoundFigures, RunFigures):
    """The content of ``summary.json``; the fields of the run come first, then those of the round."""

    compared_by: str = ""
    """The metric by which runs are compared; empty in the earliest versions."""
    higher_is_better: Sequence[str] = ("accuracy",)
    """The metrics of which higher values are better; versions up to 0.2 wrote it of none."""
    by_class: Mapping[str, Sequence[str]] = {}
    """The classes of each metric by class."""
    eval_data: str = ""
    """On whose held-out examples clients were evaluated, a key of `TESTED_ON`; empty up to version 0.3."""
    failures: int | None = None
    memories_lost: Mapping[str, Sequence[int]] = {}
    intervals: Mapping[str, Any] | None = None
    """The 95 % intervals of the metrics of held-out cases: pooled, of the mean over clients, and of each."""
    subgroups: Mapping[str, Any] | None = None
    """The metrics of subgroups of the held-out cases, the worst of them, and the largest differences."""

    by_case: Mapping[str, Any] | None = None
    """Of masks, the means of the metrics of single cases: pooled, over clients, and of each."""

    @classmethod
    def read(cls, folder: Path, key: str) -> Self | None:
        """Read the file in a run's folder; None if there is none.

        Raises
        ------
        UserError
            When the file is damaged; the message begins with the key.
        """
        path = folder / SUMMARY_FILE
        try:
            return cls.model_validate(seen(json_object(path)))
        except FileNotFoundError:
            return None
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        except (OSError, ValueError) as error:
            why = str(error)
        raise UserError(f"{key}: {str(path)!r} cannot be read ({why})")


def tested_on(summaries: Iterable[Summary]) -> str:
    """Return on whose held-out examples the clients of runs were evaluated; empty if it is not known.

    And which class half of them or more are of: who always says so has that accuracy.
    """
    every = [one for one in summaries if one.mean]
    leave_out = [bool(one.left_out) for one in every]
    left_out = "the site left out is evaluated on all of its examples, none of which is trained on" * any(
        leave_out
    )
    if len(every) > 1 and all(leave_out):  # whose table is of the sites left out
        return left_out
    found = {one.eval_data for one in every} & TESTED_ON.keys()
    others = "; in other runs ".join(TESTED_ON[name] for name in sorted(found, reverse=True))
    mostly = {_mostly(one) for one in every}
    if others and not left_out and len(mostly) == 1:
        others += mostly.pop()
    return "; ".join(filter(None, [others, left_out]))


def _mostly(summary: Summary) -> str:
    of = summary.per_class
    if not of or summary.compared_by != "accuracy" or len(of.names) != len(of.examples):
        return ""
    most, every = max(of.examples, default=0), sum(of.examples)
    if not every or 2 * most < every:
        return ""
    name = of.names[of.examples.index(most)]
    return f", of which {100 * most / every:.1f} % are {f'class {name}' if name.isdigit() else repr(name)}"
