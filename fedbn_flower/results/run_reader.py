"""Read a run's folder: of any version, and also of a run that was stopped; with one without privacy."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import annexes
from ..config.help import as_text
from ..config.keys import Data
from ..core.errors import not_allowed
from ..core.files import PARQUET
from ..core.free_memory import regular
from ..core.ground.columns import GLOBAL, POOLED, SECONDS, SIMULATED_SECONDS
from ..core.ground.settings import flag_of
from ..core.ground.wire import LOSS
from ..core.notes import Note
from ..core.stored import APP, RUN, checked_kind, damage_as_user_errors, rows_of, seen
from ..core.text import number_of
from ..data.sources import MADE
from ..extensions.privacy import NONE, PrivacyKeys
from ..names import short
from ..records.cases import binary_cases
from ..records.checkpoint import goes_by_real_clock
from ..records.summary import Summary
from .manifest import LEARNT, NOT_KEYS, read_manifest
from .summary import class_columns, columns_by_class

if TYPE_CHECKING:
    from pandas import DataFrame

Points = dict[int, float]
"""Value by round."""
SIMULATED, REAL, MEGABYTES = "simulated seconds", "seconds", "MB sent and received"
PARTITIONS = "partitions.csv"
"""The training examples of each client, by class."""
COSTS = (SIMULATED, REAL, MEGABYTES)
"""What a figure may have on its axis in place of the round."""
EVERY_RUN = (RUN, APP)
"""The kinds of folders that hold a run, of ours or of a Flower app."""
CURVES = {
    "": "clients, held out (mean over examples)",
    GLOBAL: "global model, held out",
    "train-": "clients, training (weighted mean)",
    POOLED: "clients, held out (pooled)",
}
"""Prefixes of columns of metrics, each with what these are of."""


def dataset_name(text: str) -> str:
    """Return a dataset as a person calls it: of a file or folder, the last part of its path."""
    kind, colon, path = text.rpartition(":")
    return f"{kind}{colon}{Path(path).name}" if path.startswith(("/", ".", "~")) else text


class Told(NamedTuple):
    """How a Flower app's run is told, whose keys are its own."""

    title: str
    where: tuple[str, ...]
    sentence: str
    command: Sequence[str]
    """The words that run it again; none if no command can."""
    metrics: Sequence[str]
    """The names of those of which there are curves."""
    curves: Mapping[str, str]
    """In the place of `CURVES`."""


DIVERGED = "evaluation diverged"
"""What ``failures.csv`` says of a model that is not finite."""
IGNORED = {*NOT_KEYS, "run-dir", "resume", "cache-dir", "verbose", "seed"}
"""Entries of a manifest that are not compared: runs that differ only in these do the same work."""


@dataclass(frozen=True)
class Run:
    """A run's folder. ``summary`` is of no rounds if the run stopped before its first checkpoint.

    A private run may be compared with the same one ``without_noise``.
    """

    folder: Path
    config: Mapping[str, Any]
    summary: Summary
    metrics: list[dict[str, str]]
    without_noise: "Run | None" = None
    told: Told | None = None

    @classmethod
    def read(cls, folder: Path, key: str = "folder", kinds: Sequence[str] = (RUN,)) -> "Run":
        """Read the folder of a run of these kinds.

        Raises
        ------
        UserError
            When the folder is not a run's, or its summary is damaged; the message begins with the key.
        """
        if checked_kind(folder, key, *kinds) == APP:
            found: Run = annexes.load("runs", APP, key)(folder, key)
            return found
        config = seen(read_manifest(folder, key))
        summary = Summary.read(folder, key) or Summary()
        with damage_as_user_errors(key, folder):
            return cls(folder, config, summary, list(rows_of(folder / "metrics.csv")))

    @property
    def learnt(self) -> list[Note]:
        """What the run learns, from what, and from whom; empty up to version 0.2."""
        return [Note(**line) for line in self.config.get(LEARNT, ())]

    @cached_property
    def main_metric(self) -> str:
        """The metric by which runs are compared, such as ``accuracy`` or ``loss``."""
        measured = "accuracy" if any("accuracy" in row for row in self.metrics[:1]) else "loss"
        return self.summary.compared_by or measured

    def higher_is_better(self, metric: str) -> bool:
        """Whether higher values of a metric are better."""
        return metric in self.summary.higher_is_better

    @property
    def by_class(self) -> dict[str, dict[str, str]]:
        """The columns of metrics by class: for each of those metrics, the column of each class."""
        return columns_by_class(self.summary)

    @property
    def class_columns(self) -> set[str]:
        """The columns of `by_class` of all metrics."""
        return class_columns(self.summary)

    @property
    def algorithms(self) -> str:
        """Strategy, client and objective: ``fedyogi fedbn sgd``."""
        return " ".join(short(str(self.config.get(k, ""))) for k in ("strategy", "client", "objective"))

    @property
    def title(self) -> str:
        """Two lines: algorithms and seed, then data, partition and clients."""
        if self.told:
            return self.told.title
        return f"{self.algorithms}, seed {self.config.get('seed')}\n{', '.join(self.where)}"

    @property
    def dataset(self) -> str:
        """The dataset's name; of a file or folder, the last part of its path."""
        return dataset_name(str(self.config.get("dataset")))

    @property
    def where(self) -> tuple[str, ...]:
        """Data, partition and number of clients, in words."""
        config = self.config
        if self.told:
            return self.told.where
        return (
            f"on {self.dataset}",
            str(config.get("partition")),
            number_of(config.get("num-clients", 0), "client"),
        )

    @cached_property
    def client_names(self) -> dict[int, str]:
        """The clients' names by partition; empty if the data have none."""
        return dict(enumerate(self.config.get("client-names") or []))

    @property
    def class_names(self) -> list[str]:
        """The names of the classes, labels or numbers, in their order; empty if the data have none.

        Versions up to 0.2 wrote them only with the accuracy by class.
        """
        by_class = self.summary.per_class or self.summary.global_per_class
        return self.config.get("class-names") or list(by_class.names if by_class else ())

    @property
    def event(self) -> str:
        """What is predicted of two classes, in words: a class, as ``class 1`` if it has no name; or a label.

        Versions up to 0.2 knew the second class only.
        """
        names, events = self.class_names, self.config.get("events") or ["1", *self.class_names[1:]][-1:]
        name = str(events[0])
        if len(names) == 1:
            return names[0] if name == "1" else f"{names[0]} {name}"
        return f"class {name}" if name.isdigit() else name

    @property
    def outcomes(self) -> list[str]:
        """The names of both classes, the event as the second; those of `class_names` of other data."""
        names, events = self.class_names or ["0", "1"], self.config.get("events")
        return names[::-1] if len(names) == 2 and events == names[:1] else names

    @property
    def rounds(self) -> int:
        """The rounds that it is to have."""
        return int(self.config.get("rounds") or 0)

    @property
    def rounds_done(self) -> int:
        """The last round that it has recorded."""
        return int(self.metrics[-1]["round"]) if self.metrics else 0

    @property
    def has_ended(self) -> bool:
        """Whether its rounds are done, or it has stopped by itself."""
        return bool(self.summary.stopped) or self.rounds_done >= self.rounds

    @cached_property
    def has_diverged(self) -> bool:
        """Whether the model of the last round was not finite, so that nobody has evaluated it."""
        of_end = self.summary.main if self.summary.rounds == self.rounds_done else {}
        if {**[{}, *self.metrics][-1], **of_end}.get(LOSS) not in (None, ""):
            return False
        rows = rows_of(self.folder / "failures.csv")
        return any(int(row["round"]) == self.rounds_done and DIVERGED in row["reason"] for row in rows)

    def total(self, column: str) -> float:
        """Return the sum of a column of ``metrics.csv`` over the rounds."""
        return sum(float(row[column]) for row in self.metrics if row.get(column))

    def points(self, column: str) -> Points:
        """Return a column of ``metrics.csv`` as a dict by round; empty cells are left out."""
        return {int(r["round"]): float(r[column]) for r in self.metrics if r.get(column)}

    def costs(self, cost: str) -> Points:
        """Return what the run had cost by the end of each round, in one of `COSTS`; empty if not counted."""
        simulated = self.points(SIMULATED_SECONDS)
        if cost == SIMULATED:
            return simulated
        if cost == REAL:
            counts = not simulated and goes_by_real_clock(self.summary.runtime)
            seconds = self.points(SECONDS) if counts else {}
            return dict(zip(seconds, accumulate(seconds.values()), strict=True))
        sent, received = self.points("bytes-sent"), self.points("bytes-received")
        return dict(zip(sent, accumulate((sent[r] + received[r]) / 1e6 for r in sent), strict=True))

    @property
    def shown_costs(self) -> list[str]:
        """The `COSTS` that say more than rounds do: seconds, and bytes where messages are compressed."""
        compressed = any(self.config.get(key, "none") != "none" for key in ("compress", "compress-down"))
        return [cost for cost in COSTS if self.costs(cost) and (cost != MEGABYTES or compressed)]

    def client_points(self, metric: str = "") -> dict[int, Points]:
        """Return a metric, by default the main one, of each participating client, by partition and round."""
        points: dict[int, Points] = {}
        metric = metric or self.main_metric
        names = ["round", "phase", "partition", metric]
        table = large_table(self.folder)
        rows: Iterable[Sequence[Any]] = (
            ([row.get(name, "") for name in names] for row in rows_of(self.folder / "clients.csv"))
            if table is None
            else table.reindex(columns=names).dropna(subset=[metric]).itertuples(index=False)
        )
        for server_round, phase, partition, value in rows:
            if value != "" and phase != "new":
                points.setdefault(int(partition), {})[int(server_round)] = float(value)
        return dict(sorted(points.items()))

    @cached_property
    def binary_cases(self) -> "DataFrame | None":
        """The held-out cases one by one, of two classes; None of other runs, and where they are not kept."""
        return binary_cases(self.folder)

    def failures(self) -> list[tuple[str, int, str]]:
        """Return client, count and reason of the unused answers, most frequent first."""
        names = self.client_names
        found = Counter(
            (names.get(int(row["partition"]), row["partition"]), row["reason"])
            for row in rows_of(self.folder / "failures.csv")
        )
        return [(client, count, reason) for (client, reason), count in found.most_common()]


def changed_data(runs: Iterable[Run]) -> bool:
    """Whether runs found other examples where they read the same data in the same way: these have changed."""
    found: dict[tuple[str, ...], set[object]] = {}
    for run in runs:
        drawn = str(run.config.get("dataset")).startswith(tuple(MADE))
        keys = [*map(flag_of, Data.model_fields), "dp-unit", *(["seed"] if drawn else [])]
        data = found.setdefault(tuple(str(run.config.get(key)) for key in keys), set())
        data.update({run.config.get("data")} - {None})
    return any(len(data) > 1 for data in found.values())


def large_table(folder: Path) -> "DataFrame | None":
    """Return ``clients.parquet``, which a run with a large ``clients.csv`` has beside it; else None."""
    path = folder / f"clients{PARQUET}"
    if not path.exists():
        return None
    import pandas as pd

    return pd.read_parquet(regular(path.absolute()))


def compared(run: Run) -> dict[str, str]:
    """Return what is compared of a run, as text."""
    values = {key: _text(value) for key, value in run.config.items() if key not in IGNORED}
    values |= {f"version of {k}": str(v) for k, v in (run.config.get("versions") or {}).items()}
    return values | {"data (digest)": str(run.config.get("data", ""))[:12]}


def _text(value: object) -> str:
    """Return a value as text, the same for 1 and 1.0."""
    return as_text(value).removesuffix(".0") if isinstance(value, float) else as_text(value)


def with_reference(run: Run, folder: Path) -> Run:
    """Return a private run with the one in a folder, which is the same but for its privacy.

    Raises
    ------
    UserError
        When the run is not private, or the other one differs in more.
    """
    if not run.summary.privacy:
        raise not_allowed("reference", str(folder), f"none: {str(run.folder)!r} is no complete run with dp")
    reference = Run.read(folder, "reference")
    here, there = ({**compared(one), "seed": _text(one.config.get("seed"))} for one in (run, reference))
    private = {"weighting", *map(flag_of, PrivacyKeys.model_fields)}
    for key in here.keys() | there.keys():
        first, other = here.get(key, ""), there.get(key, "")
        if first != other and key not in private and not key.startswith("version of "):
            raise not_allowed(
                "reference", str(folder), f"the same run without dp: its {key} is {other}, not {first}"
            )
    if there.get("dp", NONE) != NONE or not reference.summary.rounds:
        raise not_allowed("reference", str(folder), "a complete run without dp")
    return replace(run, without_noise=reference)
