"""A run that observers are told of, and its rounds."""

from flwr.app import ArrayRecord

from fedbn_flower.records.events import RoundResult, RunInfo
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
    values = {"splits": "val", **values}
    return RoundResult(
        server_round, 0.1, ArrayRecord(), report, report, means or {}, None, ("loss", "accuracy"), **values
    )
