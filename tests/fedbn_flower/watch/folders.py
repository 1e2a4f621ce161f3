"""Folders of runs, written as a run writes them."""

import csv
import json

KEYS = {"folder-of": "run", "strategy": "fedavg", "client": "fedbn", "objective": "plain", "loss": "auto"}
METRICS = ("round", "seconds", "replies", "failures", "loss", "accuracy", "bytes-sent", "bytes-received")
CLIENTS = ("round", "phase", "partition", "site", "num-examples", "loss", "accuracy")
SITES = ("clear", "noisy")
MARKUP = "<img src=x onerror=alert(1)>&"


def write_run(folder, accuracies=(0.5, 0.75), rounds=2, names=SITES, **keys):
    """Write a run that has done a round for each accuracy."""
    folder.mkdir(parents=True)
    config = {**KEYS, "seed": 0, "rounds": rounds, "client-names": list(names), **keys}
    (folder / "config.json").write_text(json.dumps(config))
    append(folder / "metrics.csv", [METRICS])
    append(folder / "clients.csv", [CLIENTS])
    append(folder / "failures.csv", [("round", "phase", "partition", "reason")])
    for done, accuracy in enumerate(accuracies, start=1):
        add_round(folder, done, accuracy, names)
    if len(accuracies) == rounds:
        write_summary(folder, rounds, accuracies[-1])
    return folder


def write_summary(folder, rounds, accuracy):
    summary = {"rounds": rounds, "mean": {"loss": 1 / 3, "accuracy": accuracy}, "compared-by": "accuracy"}
    summary |= {"seconds": 1.75, "higher-is-better": ["accuracy"]}
    (folder / "summary.json").write_text(json.dumps(summary))


def add_round(folder, number, accuracy, names=SITES):
    append(folder / "metrics.csv", [(number, 0.5, len(names), 0, 1 / 3, accuracy, 1000, 500)])
    rows = [(number, "evaluate", i, name, 9, 1 / 3, accuracy - i / 100) for i, name in enumerate(names)]
    append(folder / "clients.csv", rows)


def append(path, rows):
    with path.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
