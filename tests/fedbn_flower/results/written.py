"""Folders as runs leave them, written by hand."""

import csv
import json

from fedbn_flower.records.summary import Summary
from fedbn_flower.results.progress import cell_name

CONFIG = {
    "strategy": "fedyogi",
    "client": "fedbn",
    "objective": "plain",
    "loss": "auto",
    "model": "mlp-bn",
    "rounds": 3,
    "seed": 0,
    "dataset": "digits",
    "partition": "silos:0-4,5-9",
    "num-clients": 2,
    "local-epochs": 2,
    "server-lr": 0.01,
    "mean": "weighted",
    "run-dir": "runs/here",
    "versions": {"fedbn-flower": "0.1.0", "torch": "2.6"},
}
"""Of a run of an early version."""
METRICS = (
    "round,loss,accuracy,client-mean-loss,client-mean-accuracy\n"
    "1,2.0,0.25,2.1,0.26\n2,,,,\n3,1.0,0.75,1.1,0.76\n"
)
CLIENTS = (
    "round,phase,partition,num-examples,loss,accuracy\n1,train,0,9,,\n"
    "1,evaluate,0,5,2.0,0.2\n1,evaluate,1,5,2.0,0.3\n3,evaluate,0,5,1.0,0.7\n3,evaluate,1,5,1.0,0.8\n"
    "3,new,2,5,1.0,0.9\n"
)


def csv_rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def summary_of(accuracies, **more):
    """The summary of a run whose clients have these accuracies, alike many examples, and a loss of 1."""
    mean = {"loss": 1.0, "accuracy": sum(accuracies) / len(accuracies)}
    return {
        "rounds": 3,
        "seconds": 1.5,
        "seconds-per-round": 0.5,
        "global": None,
        "mean": mean,
        "client-mean": mean,
        "clients": {
            str(i): {"loss": 1.0, "accuracy": a, "num-examples": 10 + i} for i, a in enumerate(accuracies)
        },
        "compared-by": "accuracy",
        "failures": 0,
    } | more


def write_run(folder, summary=None, metrics=METRICS, clients=CLIENTS, **config):
    """A run's folder; without a summary that of one that was stopped."""
    folder.mkdir(parents=True)
    given = {key.replace("_", "-"): value for key, value in config.items()}
    (folder / "config.json").write_text(json.dumps(CONFIG | given))
    (folder / "metrics.csv").write_text(metrics)
    (folder / "clients.csv").write_text(clients)
    if summary:
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def add_run(grid, config, summary):
    """Add a run that has ended to a sweep's table, with its folder."""
    write_run(grid.folder / cell_name(config, grid.keys), summary, **config.to_user_config())
    grid.add(config, Summary.model_validate(summary))


def change_run(folder, keys):
    """Other values for some keys of a run that is written."""
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | keys))


def write_sweep(folder, accuracies=None):
    """Runs by strategy, client and seed. By default two strategies with two clients under two seeds, of
    which one run failed. Accuracies in percent:

    fedavg silobn 50 and 60, fedavg fedbn 70 and 80, fedyogi silobn 90 alone, fedyogi fedbn 40 and 40."""
    accuracies = accuracies or {
        ("fedavg", "silobn"): (0.5, 0.6),
        ("fedavg", "fedbn"): (0.7, 0.8),
        ("fedyogi", "silobn"): (0.9, None),
        ("fedyogi", "fedbn"): (0.4, 0.4),
    }
    lines = ["strategy,client,objective,seed,status,seconds,failures,accuracy: mean over examples,folder"]
    for (strategy, client), seeds in accuracies.items():
        for seed, accuracy in enumerate(seeds):
            cell = f"{strategy}-{client}-plain-seed{seed}"
            if accuracy is None:
                lines.append(f"{strategy},{client},plain,{seed},every client failed,,,,{cell}")
                continue
            lines.append(f"{strategy},{client},plain,{seed},ok,1.5,0,{accuracy},{cell}")
            metrics = METRICS.replace("0.75", str(accuracy))
            keys = {"strategy": strategy, "client": client, "seed": seed}
            write_run(folder / cell, summary_of([accuracy, accuracy]), metrics, **keys)
    (folder / "grid.csv").write_text("\n".join(lines) + "\n")
    return folder
