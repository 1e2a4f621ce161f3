"""What ``summary.json``, ``classes.csv`` and the columns of costs say."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from flwr.app import MessageType, MetricRecord

from fedbn_flower.strategies import PhaseReport

from ..data import Dataset
from ..records.columns import CLIENT_MEAN, COSTS, DEVIATION, WORST, WORST_TENTH
from ..records.events import RoundResult
from ..records.metrics import class_counts, figures_of, held_out_means, number, per_class
from ..records.totals import RunTotals

LISTED_CLIENTS = 10
NO_FIGURES = ("name", "num-examples")
"""What is told of a client beside its figures."""
ROUNDS = "rounds to "
CLASSES_HEADER = ("round", "partition", "class", "examples", "accuracy")


def seeds_told(runs: Collection[int]) -> str:
    """Over how many seeds a table's rows are, by their numbers of runs: ``2``, or ``1 to 3``; empty where no
    row has several."""
    told = sorted({number for number in runs if number})
    if not told or told[-1] == 1:
        return ""
    return str(told[0]) if len(told) == 1 else f"{told[0]} to {told[-1]}"


def figures_of_round(
    result: RoundResult,
    dataset: Dataset,
    train_examples: Mapping[str, int],
    client_names: Sequence[str] = (),
    shared: bool = False,
) -> dict[str, Any]:
    """The figures of a round, of the test set where it was evaluated on a validation set too.

    Parameters
    ----------
    result : RoundResult
        The round.
    dataset : Dataset
        What was learnt.
    train_examples : Mapping[str, int]
        The clients' numbers of training examples by partition, as text.
    client_names : Sequence[str]
        Whose data each client has, by partition, where the data say so.
    shared : bool
        Whether all clients have the same held-out examples.
    """
    problem, evaluated, split = dataset.problem, result.evaluate.metrics, _split(result)

    def of_clients(metrics: Mapping[str, float], prefix: str) -> dict[str, object] | None:
        return figures_of(problem, metrics, prefix + split) if evaluated else None

    names = class_names(dataset)
    by_client = counts_by_client(result, dataset)
    server = class_counts(result.global_metrics or {}, split, len(names))
    return {
        "global": result.global_metrics and figures_of(problem, result.global_metrics, split),
        "mean": of_clients(result.means, ""),
        "client-mean": of_clients(result.means, CLIENT_MEAN),
        "worst-client": of_clients(result.spread, WORST),
        "worst-tenth": of_clients(result.spread, WORST_TENTH),
        "client-std": of_clients(result.spread, DEVIATION),
        "clients": {
            str(partition): {
                **({"name": client_names[partition]} if client_names else {}),
                **figures_of(problem, metrics, split),
                "num-examples": train_examples[str(partition)],
            }
            for partition, metrics in evaluated.items()
            if str(partition) in train_examples
        },
        "per-class": per_class(names, list(by_client.values()), shared),
        "global-per-class": per_class(names, [] if server is None else [server]),
        "new-clients": _new_clients(result.new, dataset, split, client_names) if result.new else None,
    }


def totals_of(totals: RunTotals, target: float, rounds: int, seconds: float) -> dict[str, Any]:
    """What the whole run came to."""
    return {
        "rounds": rounds,
        "seconds": round(seconds, 3),
        "seconds-per-round": round(seconds / rounds, 4),
        "seconds-split": {
            "train": round(totals.train_seconds, 3),
            "evaluate": round(totals.evaluate_seconds, 3),
            "server": round(totals.server_seconds, 3),
        },
        "bytes-sent": totals.bytes_sent,
        "bytes-received": totals.bytes_received,
        "client-updates-per-second": round(totals.client_updates / seconds, 3) if seconds else None,
        "rounds-to-target": totals.rounds_to_target(target),
        "best-round": totals.best_round,
        "stopped": totals.stopped,
    }


def costs_of(result: RoundResult) -> dict[str, float]:
    """A round's `COSTS`: the seconds waited for answers of either phase and the rest, and bytes of arrays."""
    train, evaluate = (result.seconds_waited.get(p, 0.0) for p in (MessageType.TRAIN, MessageType.EVALUATE))
    seconds = (round(s, 3) for s in (train, evaluate, result.seconds - train - evaluate))
    return dict(zip(COSTS, (*seconds, result.bytes_sent, result.bytes_received), strict=True))


def without_lists(metrics: MetricRecord) -> dict[str, object]:
    """The metrics that a cell holds."""
    return {name: value for name, value in metrics.items() if not isinstance(value, list)}


def figures_by_whose(summary: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """A summary's figures as a table of runs has them: of few clients each one's, of many the worst tenth's.
    Those of earlier versions lack some."""
    clients, new = summary["clients"], summary.get("new-clients")
    few = len(clients) + len(new["clients"] if new else ()) <= LISTED_CLIENTS
    found = {
        "global": summary["global"],
        "mean over examples": summary.get("mean"),
        "mean over clients": summary.get("client-mean"),
        **({f"client {c.get('name', i)}": c for i, c in clients.items()} if few else {}),
        "worst tenth": None if few else summary.get("worst-tenth"),
        "new clients": new and new["mean"],
        **({f"new client {c.get('name', i)}": c for i, c in new["clients"].items()} if new and few else {}),
    }
    return {whose: figures for whose, figures in found.items() if figures}


def rounds_reached(summary: Mapping[str, Any]) -> dict[str, int]:
    """In how many rounds the target was reached, by what it is and who did."""
    told = summary.get("rounds-to-target") or {}
    found = {"global": told.get("global"), "mean over examples": told.get("mean")}
    return {f"{ROUNDS}{told['target']}: {whose}": n for whose, n in found.items() if n is not None}


def class_rows(result: RoundResult, dataset: Dataset) -> list[dict[str, object]]:
    """A row for each client and class, by `CLASSES_HEADER`; none where nobody counted by class."""
    names, found = class_names(dataset), counts_by_client(result, dataset)
    return [
        {
            "round": result.server_round,
            "partition": partition,
            "class": name,
            "examples": examples,
            "accuracy": hits / examples if examples else "",
        }
        for partition, counts in found.items()
        for name, hits, examples in zip(names, *counts.tolist(), strict=True)
    ]


def class_names(dataset: Dataset) -> list[str]:
    """The classes' names; their numbers where they have none, and nothing where there are no classes."""
    numbers = range(dataset.spec.outputs if dataset.has_classes else 0)
    named = dataset.class_names
    return [named[i] if i < len(named) else str(i) for i in numbers]


def counts_by_client(result: RoundResult, dataset: Dataset) -> dict[int, Any]:
    """`metrics.class_counts` of each client that counted, by partition."""
    classes, split = len(class_names(dataset)), _split(result)
    found = {p: class_counts(m, split, classes) for p, m in result.evaluate.metrics.items()}
    return {partition: counts for partition, counts in found.items() if counts is not None}


def _split(result: RoundResult) -> str:
    """Before the names of the figures that the summary tells: the last split's."""
    splits = result.splits.split(",")
    return f"{splits[-1]}-" if len(splits) > 1 else ""


def _new_clients(
    report: PhaseReport, dataset: Dataset, split: str, client_names: Sequence[str]
) -> dict[str, Any]:
    problem = dataset.problem
    means = held_out_means(report.metrics.values(), False, problem)
    return {
        "mean": figures_of(problem, means, split),
        "client-mean": figures_of(problem, means, CLIENT_MEAN + split),
        "clients": {
            str(partition): {
                **({"name": client_names[partition]} if client_names else {}),
                **figures_of(problem, metrics, split),
                "num-examples": _whole(metrics, "train-examples"),
            }
            for partition, metrics in report.metrics.items()
        },
    }


def _whole(metrics: MetricRecord, key: str) -> int | None:
    value = number(metrics, key)
    return None if value is None else int(value)
