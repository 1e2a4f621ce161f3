"""The tables to which a run adds rows after every round, and their columns."""

from collections.abc import Collection, Sequence
from pathlib import Path

from flwr.app import MessageType

from fedbn_flower.clients import Problem

from ..core.files import CsvLog, Row
from ..core.ground import columns
from ..records.events import RoundResult
from ..server.federation import Federation


class RoundTables:
    """``metrics.csv``, ``clients.csv`` and ``failures.csv``.

    The first has one row per round, the second one per (round, phase, partition) with what that client
    reported, the third one per unused answer, with the reason.

    Parameters
    ----------
    folder : Path
        The run's folder.
    federation : Federation
        The run.
    last_round : int
        The last round whose rows are kept, of a run that is resumed; else 0.
    """

    def __init__(self, folder: Path, federation: Federation, last_round: int) -> None:
        problem, refused = federation.problem, folder / "failures.csv"
        header = [*round_header(problem), *federation.extensions.header]
        self.metrics = CsvLog(folder / "metrics.csv", header, last_round)
        self.names = federation.inputs.client_names
        named = [columns.SITE] if self.names else []
        named += [columns.MODEL] if federation.strategy.keeps_models else []
        header = [*columns.CLIENT_COLUMNS, *named, "num-examples", *problem.metrics]
        self.clients = CsvLog(folder / "clients.csv", header, last_round)
        self.refused = CsvLog(
            refused, [*columns.CLIENT_COLUMNS, "reason"], last_round if refused.exists() else 0
        )

    def add_round(self, result: RoundResult) -> None:
        """Add the rows of a round."""
        named = columns.SITE in self.clients.columns  # not in a table that an earlier version has begun
        names = self.names if named else ()
        row, answers = row_of_round(result, self.metrics.columns), rows_of_answers(result, names)
        self.metrics.append([row])
        self.clients.append(answers)
        self.refused.append(
            [
                {"round": result.server_round, "phase": phase, "partition": partition, "reason": reason}
                for phase, report in result.reports.items()
                for partition, reason in report.failures.items()
            ]
        )

    def sync(self) -> None:
        """Fsync the three files."""
        for rows in (self.metrics, self.clients, self.refused):
            rows.sync()


def round_header(problem: Problem) -> list[str]:
    """Return the first columns of ``metrics.csv``; further metrics are not measured in training."""
    prefixes = ("", columns.CLIENT_MEAN, columns.GLOBAL, *([columns.POOLED] if problem.chosen else []))
    return [
        *columns.ROUND_COLUMNS,
        *(f"train-{name}" for name in problem.metrics if name not in problem.further),
        *(prefix + name for prefix in prefixes for name in problem.metrics),
        *columns.COSTS,
        *(prefix + problem.compared_by for prefix in (columns.WORST, columns.WORST_TENTH, columns.DEVIATION)),
    ]


def row_of_round(result: RoundResult, known: Collection[str]) -> Row:
    """Return the row of ``metrics.csv``: of the spread over clients, what has a column already."""
    return {
        "round": result.server_round,
        "seconds": round(result.seconds, 3),
        "replies": len(result.train.metrics),
        "failures": result.failures,
        **result.metrics,
        **round_costs(result),
        **result.noted,
        **{name: value for name, value in result.spread.items() if name in known},
    }


def rows_of_answers(result: RoundResult, names: Sequence[str] = ()) -> list[Row]:
    """Return the rows of ``clients.csv``: of each answer that was used, what fits a cell.

    ``names`` are those of the clients, by partition; none where they have none.
    """
    return [
        {
            "round": result.server_round,
            "phase": phase,
            "partition": partition,
            **({columns.SITE: names[partition]} if names else {}),
            **{name: value for name, value in metrics.items() if not isinstance(value, list)},
            **(result.facts_of_clients.get(partition, {}) if phase == "train" else {}),
            **({columns.MODEL: report.models[partition]} if partition in report.models else {}),
        }
        for phase, report in result.reports.items()
        for partition, metrics in report.metrics.items()
    ]


def round_costs(result: RoundResult) -> dict[str, float]:
    """Return a round's `COSTS`: seconds waited in each phase, the remaining seconds, and bytes of arrays."""
    train, evaluate = (result.seconds_waited.get(p, 0.0) for p in (MessageType.TRAIN, MessageType.EVALUATE))
    seconds = (round(s, 3) for s in (train, evaluate, result.seconds - train - evaluate))
    return dict(zip(columns.COSTS, (*seconds, result.bytes_sent, result.bytes_received), strict=True))
