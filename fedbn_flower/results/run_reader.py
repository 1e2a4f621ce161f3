"""What a run left in its folder, as far as it is there: of any version, also where it was stopped."""

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..config.registry import short
from .manifest import stored_facts

Points = dict[int, float]
"""A value by round."""


@dataclass(frozen=True)
class Run:
    """One run's folder; ``summary`` is empty where it was stopped before its first checkpoint."""

    folder: Path
    config: Mapping[str, Any]
    summary: Mapping[str, Any]
    metrics: list[dict[str, str]]

    @classmethod
    def read(cls, folder: Path, key: str = "folder") -> "Run":
        """Read the folder.

        Raises
        ------
        UserError
            When it is no run's; the message begins with the key.
        """
        config = stored_facts(folder, key)
        summary: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            summary = json.loads((folder / "summary.json").read_text())
        return cls(folder, config, summary, list(rows_of(folder / "metrics.csv")))

    @cached_property
    def by(self) -> str:
        """The figure that runs are compared by: ``accuracy``, or ``loss``."""
        told = self.summary.get("compared-by")
        return str(told or ("accuracy" if any("accuracy" in row for row in self.metrics[:1]) else "loss"))

    @property
    def algorithms(self) -> str:
        """``fedyogi fedbn sgd``."""
        return " ".join(short(str(self.config.get(k, ""))) for k in ("strategy", "client", "objective"))

    @property
    def title(self) -> str:
        """What ran, in two lines."""
        return f"{self.algorithms}, seed {self.config.get('seed')}\n{', '.join(self.where)}"

    @property
    def dataset(self) -> str:
        """Its name; of a file or a folder the last part of its path."""
        kind, colon, path = (name := str(self.config.get("dataset"))).rpartition(":")
        return f"{kind}{colon}{Path(path).name}" if path.startswith(("/", ".", "~")) else name

    @property
    def where(self) -> tuple[str, str, str]:
        """What it ran on: data, partition, clients."""
        config = self.config
        return f"on {self.dataset}", str(config.get("partition")), f"{config.get('num-clients')} clients"

    @cached_property
    def client_names(self) -> dict[int, str]:
        """What the data call their clients, by partition; empty where they do not."""
        return dict(enumerate(self.config.get("client-names") or []))

    def points(self, column: str) -> Points:
        """A column of ``metrics.csv``, where it has a number."""
        return {int(r["round"]): float(r[column]) for r in self.metrics if r.get(column)}

    def client_points(self) -> dict[int, Points]:
        """The figure of comparison as each client that takes part reported it, by partition and round."""
        points: dict[int, Points] = {}
        for row in rows_of(self.folder / "clients.csv"):
            if row.get(self.by) and row["phase"] != "new":
                points.setdefault(int(row["partition"]), {})[int(row["round"])] = float(row[self.by])
        return dict(sorted(points.items()))

    def failures(self) -> list[tuple[str, int, str]]:
        """Why answers were not used: the client, how often, the reason; the most frequent first."""
        names = self.client_names
        found = Counter(
            (names.get(int(row["partition"]), row["partition"]), row["reason"])
            for row in rows_of(self.folder / "failures.csv")
        )
        return [(client, times, reason) for (client, reason), times in found.most_common()]


def rows_of(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a CSV file; none where there is no file. A row that a kill has torn ends them."""
    if not path.exists():
        return
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if None in row.values():
                return
            yield row
