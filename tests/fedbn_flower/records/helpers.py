"""A run that observers are told of."""

from fedbn_flower.records.events import RunInfo


def info(first_round=1, rounds=3, folder=None):
    figures = ("loss", "accuracy")
    return RunInfo(
        {}, folder, first_round, rounds, "digits", "iid", (), figures, "accuracy", frozenset({"accuracy"})
    )
