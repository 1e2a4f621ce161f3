"""A run that observers are told of, its rounds, and one of them that ends it; and the tables that it left."""

import csv

from flwr.app import ArrayRecord

from fedbn_flower.records.events import Observer, RoundResult, RunInfo
from strategies import PhaseReport


def info(first_round=1, rounds=3, folder=None, config=None, compared_by="accuracy"):
    figures = ("loss", "accuracy")
    higher = frozenset({"accuracy"})
    return RunInfo(
        config or {}, folder, first_round, rounds, "digits", "iid", (), figures, compared_by, higher
    )


def result(server_round=1, means=None, **values):
    """An evaluated round without answers."""
    report = PhaseReport()
    usual = {"arrays": ArrayRecord(), "train": report, "evaluate": report, "means": means or {}}
    usual |= {"global_metrics": None, "metric_names": ("loss", "accuracy"), "splits": "val"}
    return RoundResult(server_round, 0.1, **usual | values)


class Stops(Observer):
    """Ends a run after a round, as a kill would: the round is written, the next one begins."""

    def __init__(self, after, error=KeyboardInterrupt):
        self.after, self.error, self.arrays = after, error, None

    def on_round(self, result):
        if result.server_round == self.after:
            self.arrays = result.arrays
            raise self.error


class Watching(Observer):
    """Calls a function of each round."""

    def __init__(self, on_round):
        self.on_round = on_round


def entries(result):
    """The arrays of a round's model by name."""
    return {name: array.numpy() for name, array in result.arrays.items()}


def rows_of(folder, name="metrics.csv"):
    """The rows of a table that a run has written."""
    with (folder / name).open(newline="") as file:
        return list(csv.DictReader(file))


def rows_but_times(folder, name="metrics.csv"):
    """The same, without what a clock said."""
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in rows_of(folder, name)]


def bits(result):
    """The model that a run has written."""
    return (result.folder / "model.safetensors").read_bytes()
