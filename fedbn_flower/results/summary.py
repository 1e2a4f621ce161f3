"""Make the content of ``summary.json``, and tables of it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from flwr.app import MetricRecord

from fedbn_flower.clients import Problem
from fedbn_flower.strategies import PhaseReport

from ..core.ground.columns import (
    CLIENT_MEAN,
    DEVIATION,
    RECALIBRATED,
    SECONDS,
    SIMULATED_SECONDS,
    WORST,
    WORST_TENTH,
)
from ..core.ground.wire import FEATURE_MEAN, FEATURE_STD
from ..data import Dataset
from ..records.cases import of_scores
from ..records.events import RoundResult
from ..records.metrics import held_out_means, jain, metric_values, number, pooled_metrics, shown
from ..records.summary import (
    OVER,
    PIXELS,
    SINGLE_CASES,
    CostsToTarget,
    Figures,
    NewClients,
    OfClient,
    Recalibrated,
    RoundFigures,
    Summary,
)
from ..server.federation import Federation
from .classes import accuracy_by_class

LISTED_CLIENTS = 10
MULTI_LABEL = "multi-label"
NON_METRICS = ("name", "num-examples")
"""Entries of a client in the summary that are not metrics."""
LEFT_OUT = "left out"
JAIN_OF_CLIENTS = "Jain's index"
"""The column of a table of runs with Jain's index of the clients' metric, which has no unit."""
TO_TARGET = ("rounds to ", "MB to ", "simulated seconds to ", "seconds to ")
"""How columns of what it took to reach the target begin."""


def seeds_text(runs: Collection[int]) -> str:
    """Return over how many seeds the rows of a table are, from their numbers of runs: ``2`` or ``1 to 3``.

    Empty if no row has several.
    """
    counts = sorted({number for number in runs if number})
    if not counts or counts[-1] == 1:
        return ""
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def round_figures(
    result: RoundResult,
    dataset: Dataset,
    train_examples: Mapping[str, int],
    client_names: Sequence[str] = (),
    shared: bool = False,
    recalibrate: str = "",
) -> RoundFigures:
    """Return the metrics of a round, of the test set if there is a validation set too.

    Parameters
    ----------
    result : RoundResult
        The round.
    dataset : Dataset
        The dataset, with its problem and classes.
    train_examples : Mapping[str, int]
        The clients' numbers of training examples by partition, as text.
    client_names : Sequence[str]
        The clients' names by partition, if the data have any.
    shared : bool
        Whether all clients have the same held-out examples.
    recalibrate : str
        How clients recalibrate their scores, if they do.
    """
    problem, evaluated, split = dataset.problem, result.evaluate.metrics, result.prefix

    def of_clients(metrics: Mapping[str, float], prefix: str) -> Figures | None:
        return metric_values(problem, metrics, prefix + split) if evaluated else None

    found = result.global_metrics
    new, received = (
        _new_clients(report, dataset, split, client_names) if report else None
        for report in (result.new, result.new_as_received)
    )
    of_clients_by_class, of_global_by_class = accuracy_by_class(result, dataset, shared)
    figures = RoundFigures(
        of=_computed_from(problem, bool(result.evaluate.pooled)),
        over=OVER,
        global_=found and metric_values(problem, found, split),
        mean=of_clients(result.means, ""),
        pooled=metric_values(problem, result.pooled, split) if result.pooled else None,
        client_mean=of_clients(result.means, CLIENT_MEAN),
        worst_client=of_clients(result.spread, WORST),
        worst_tenth=of_clients(result.spread, WORST_TENTH),
        client_std=of_clients(result.spread, DEVIATION),
        client_jain=_jain(evaluated.values(), problem, split) if evaluated else None,
        clients={
            str(partition): {
                **({"name": client_names[partition]} if client_names else {}),
                **metric_values(problem, metrics, split),
                "num-examples": train_examples[str(partition)],
            }
            for partition, metrics in evaluated.items()
            if str(partition) in train_examples
        },
        per_class=of_clients_by_class,
        global_per_class=of_global_by_class,
        new_clients=new,
    )
    recalibrated = _recalibrated(result, dataset, client_names, recalibrate)
    further = {"new_clients_as_received": received, "recalibrated": recalibrated}
    return figures.model_copy(update={key: part for key, part in further.items() if part})


def _computed_from(problem: Problem, exactly: bool) -> dict[str, str]:
    """Return what each metric is computed from, in words."""
    found = dict.fromkeys(problem.metrics, PIXELS if problem.case_metrics else SINGLE_CASES)
    for name, metric in of_scores(problem):
        if not exactly:
            counts = f"counts at {metric.predicted.thresholds:,} fixed thresholds"
            found |= dict.fromkeys(metric.columns(name), counts)
    return found


def _recalibrated(
    result: RoundResult, dataset: Dataset, client_names: Sequence[str], method: str
) -> Recalibrated | None:
    """Return what clients found of their recalibrated scores, and how; None if none has any."""
    problem, prefix = dataset.problem, f"{RECALIBRATED}-"
    own = (*problem.metrics, "examples")
    clients = {}
    for partition, metrics in result.evaluate.metrics.items():
        reported = (key.removeprefix(prefix) for key in metrics if key.startswith(prefix))
        parameters = {key: number(metrics, prefix + key) for key in reported if key not in own}
        if prefix + problem.metrics[0] in metrics:
            clients[str(partition)] = {
                **({"name": client_names[partition]} if client_names else {}),
                **{key: value for key, value in parameters.items() if value is not None and isfinite(value)},
                **metric_values(problem, metrics, prefix),
            }
    if not clients:
        return None
    return Recalibrated(
        method=method,
        pooled=metric_values(problem, result.pooled, prefix) if result.pooled else None,
        mean=metric_values(problem, result.means, prefix),
        client_mean=metric_values(problem, result.means, CLIENT_MEAN + prefix),
        clients=clients,
    )


def _jain(reported: Collection[MetricRecord], problem: Problem, prefix: str) -> Figures:
    """Return Jain's index of each held-out metric over the clients that report it."""
    values = {name: [number(metrics, prefix + name) for metrics in reported] for name in problem.metrics}
    return {name: jain([v for v in found if v is not None]) for name, found in values.items()}


def normalization(federation: Federation) -> dict[str, list[float]]:
    """Return mean and deviation, by channel or column, where all clients standardise alike."""
    scale = federation.inputs.dataset.kind.scale if federation.config.normalize else None
    here = dict(zip((FEATURE_MEAN, FEATURE_STD), map(list, scale), strict=True)) if scale else {}
    return federation.totals.normalization or here


def summary_of(
    federation: Federation, figures: RoundFigures, rounds: int, seconds: float, failures: int
) -> Summary:
    """Return the summary of a run after so many rounds, with the figures of the one that is kept."""
    problem, totals = federation.problem, federation.totals
    found = {
        "rounds": rounds,
        "seconds": round(seconds, 3),
        "seconds-per-round": round(seconds / rounds, 4),
        "seconds-split": {
            "train": round(totals.train_seconds, 3),
            "evaluate": round(totals.evaluate_seconds, 3),
            "server": round(totals.server_seconds, 3),
        },
        **({SIMULATED_SECONDS: round(totals.simulated_seconds, 3)} if totals.simulated_seconds else {}),
        "bytes-sent": totals.bytes_sent,
        "bytes-received": totals.bytes_received,
        "client-updates-per-second": round(totals.client_updates / seconds, 3) if seconds else None,
        **federation.extensions.summary(),
        "stopped": totals.stopped,
        **({"normalization": scale} if (scale := normalization(federation)) else {}),
        "runtime": totals.runtime,
        **figures.as_json(),
        "compared-by": problem.compared_by,
        "higher-is-better": [name for name in problem.metrics if name in problem.higher_is_better],
        "by-class": {name: metric.by for name, metric in problem.chosen.items() if metric.by},
        "eval-data": federation.inputs.tested_on.eval_data,
        "failures": failures,
        **({"memories-lost": lost} if (lost := federation.memories.lost) else {}),
    }
    return Summary.model_validate(found)


def metrics_by_group(summary: Summary) -> dict[str, OfClient]:
    """Return a summary's metrics by group of clients, as in a table of runs.

    With few clients there is a group for each, with many the worst tenth. Summaries of earlier versions lack
    some groups.
    """
    clients, new = summary.clients, summary.new_clients or NewClients()
    if (left_out := summary.left_out) and (received := summary.new_clients_as_received):
        return {
            LEFT_OUT: left_out.mean or {},
            f"{LEFT_OUT}, statistics as received": received.mean or {},
        }
    few = len(clients) + len(new.clients) <= LISTED_CLIENTS
    found: dict[str, OfClient | None] = {
        **_of_all(summary),
        **({f"client {c.get('name', i)}": c for i, c in clients.items()} if few else {}),
        "worst tenth": None if few else summary.worst_tenth,
        "new clients": new.mean,
        **({f"new client {c.get('name', i)}": c for i, c in new.clients.items()} if few else {}),
    }
    return {group: metrics for group, metrics in found.items() if metrics}


def over_labels(problems: Iterable[object]) -> str:
    """Return what the metrics of several labels are, if one of the runs' problems has them; else nothing."""
    words = "values are means over the labels: loss and accuracy over all, others over those that occur"
    return words if MULTI_LABEL in problems else ""


def deciding_column(columns: Collection[Collection[str]]) -> str:
    """Return the column of a table by which its runs are compared, from the columns that each run has.

    It is that of the site left out in turn, if every run has one; pooled over the clients' examples where all
    runs have that; else the clients' mean over examples if clients evaluate, or what a Flower app's strategy
    made of their metrics; else the global model's value.
    """
    if columns and all(LEFT_OUT in found for found in columns):
        return LEFT_OUT
    if columns and all(POOLED in found for found in columns):
        return POOLED
    of_clients = (name for name in (OVER_EXAMPLES, AGGREGATED) if any(name in found for found in columns))
    return next(of_clients, GLOBAL)


def _of_all(summary: Summary) -> dict[str, OfClient]:
    """Return the metrics of the global model, and those over all clients, by group."""
    found = {
        GLOBAL: summary.global_,
        POOLED: summary.pooled,
        OVER_EXAMPLES: summary.mean,
        AGGREGATED: summary.aggregated,
        "mean over clients": summary.client_mean,
        JAIN_OF_CLIENTS: summary.client_jain if len(summary.clients) > 1 else None,
    }
    for word, one in (("recalibrated", summary.recalibrated), ("cross-fitted", summary.cross_fitted)):
        if one:
            found |= {
                f"{word}, pooled": one.pooled,
                f"{word}, mean over examples": one.mean,
                f"{word}, mean over clients": one.client_mean,
            }
    return {group: metrics for group, metrics in found.items() if metrics}


POOLED, OVER_EXAMPLES, GLOBAL = "pooled", "mean over examples", "global"
AGGREGATED = "clients, as aggregated"
NOBODY: Mapping[str, Mapping[str, Any]] = {}


def name_of_left_out(summary: Summary) -> str:
    """Return the name of the client that ``leave-one-site-out`` left out, or its number."""
    clients = (summary.new_clients or NewClients()).clients
    return ", ".join(client.get("name", number) for number, client in clients.items())


def shown_mean(
    name: str,
    metrics: Mapping[str, Any],
    clients: Mapping[str, Mapping[str, Any]] = NOBODY,
    digits: int | None = None,
) -> str:
    """Return a metric as text; a mean over ``clients`` says how many lack it: ``55.0 % (1 of 2 has none)``.

    Their mean is that of the others: a metric may be undefined on a client's examples. Where no client has
    one, the mean is derived from other means.
    """
    text = shown(name, metrics.get(name), digits)
    none = sum(of_client.get(name) is None for of_client in clients.values())
    if metrics.get(name) is None or not 0 < none < len(clients):
        return text
    return f"{text} ({none} of {len(clients)} {'has' if none == 1 else 'have'} none)"


def shown_index(value: float | None) -> str:
    """Return Jain's index as text."""
    return "" if value is None else f"{value:.3f}"


def to_target(summary: Summary) -> dict[str, float]:
    """Return the rounds, megabytes (sent and received) and seconds to the target, by column."""
    rounds, costs = summary.rounds_to_target, summary.costs_to_target or CostsToTarget()
    if not rounds:
        return {}
    name = f"{rounds.metric}=" if rounds.metric not in (None, summary.compared_by) else ""
    found: dict[str, float] = {}
    for group, reached, cost in (
        ("global", rounds.global_, costs.global_ or {}),
        ("mean over examples", rounds.mean, costs.mean or {}),
    ):
        sent = cost.get("bytes")
        megabytes = None if sent is None else sent / 1e6
        took = (reached, megabytes, cost.get(SIMULATED_SECONDS), cost.get(SECONDS))
        for kind, value in zip(TO_TARGET, took, strict=True):
            if value is not None:
                found[f"{kind}{name}{rounds.target}: {group}"] = value
    return found


def _new_clients(
    report: PhaseReport, dataset: Dataset, split: str, client_names: Sequence[str]
) -> NewClients:
    problem = dataset.problem
    means = held_out_means(report.metrics.values(), False, problem)
    pooled = pooled_metrics(report, means, problem)
    return NewClients(
        pooled=metric_values(problem, pooled, split) if pooled else None,
        mean=metric_values(problem, means, split),
        client_mean=metric_values(problem, means, CLIENT_MEAN + split),
        clients={
            str(partition): {
                **({"name": client_names[partition]} if client_names else {}),
                **metric_values(problem, metrics, split),
                "num-examples": _whole(metrics, "train-examples"),
            }
            for partition, metrics in report.metrics.items()
        },
    )


def _whole(metrics: MetricRecord, key: str) -> int | None:
    value = number(metrics, key)
    return None if value is None else int(value)


def columns_by_class(summary: Summary) -> dict[str, dict[str, str]]:
    """Return the columns of metrics by class: for each of those metrics, the column of each class."""
    found = summary.by_class.items()
    return {metric: {name: f"{metric}-{name}" for name in names} for metric, names in found}


def class_columns(summary: Summary) -> set[str]:
    """Return the columns of `columns_by_class` of all metrics."""
    return {column for columns in columns_by_class(summary).values() for column in columns.values()}
