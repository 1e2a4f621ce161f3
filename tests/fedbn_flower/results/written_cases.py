"""Sweeps whose runs keep their predictions, written by hand."""

import json

import numpy as np

from fedbn_flower.records.cases import CaseColumns, predictions_file

from .written import CONFIG, write_run

SITES = ("lyon", "turin")


def drawn(separations, cases=200, sites=SITES, seed=0):
    """Cases of sites by method: the same targets and ids, scores of a share of common noise."""
    rng = np.random.default_rng(seed)
    targets = (rng.random(cases) < 0.4).astype(np.int64)
    common = rng.normal(size=cases)
    found = {}
    for name, separation in separations.items():
        odds = separation * (targets - 0.5) + 0.8 * common + 0.6 * rng.normal(size=cases)
        score = 1 / (1 + np.exp(-odds))
        scores = np.stack([1 - score, score], axis=1)
        parts = np.array_split(np.arange(cases), len(sites))
        found[name] = {
            s: dict(rows=p, scores=scores[p], targets=targets[p]) for s, p in zip(sites, parts, strict=True)
        }
    return found


def columns(groups=None, fold=0):
    return CaseColumns(["well", "ill"], True, 0, groups=groups, fold=fold)


def right_of(cases):
    """Which cases of all sites are right."""
    return np.concatenate([(c["scores"][:, 1] >= 0.5) == c["targets"] for c in cases.values()])


def accuracy(cases):
    return float(right_of(cases).mean())


def summary_of_cases(cases, **more):
    right = {site: accuracy({site: of_site}) for site, of_site in cases.items()}
    events = int(sum(c["targets"].sum() for c in cases.values()))
    count = sum(len(c["rows"]) for c in cases.values())
    return {
        "rounds": 3,
        "seconds": 1.5,
        "global": None,
        "mean": {"accuracy": accuracy(cases), "loss": 1.0},
        "client-mean": {"accuracy": float(np.mean(list(right.values()))), "loss": 1.0},
        "clients": {
            str(i): {"name": s, "accuracy": a, "loss": 1.0, "num-examples": 10}
            for i, (s, a) in enumerate(right.items())
        },
        "per-class": {"names": ["well", "ill"], "examples": [count - events, events], "accuracy": [1, 1]},
        "compared-by": "accuracy",
        "failures": 0,
    } | more


def write_cases(folder, cases, groups=None, fold=0, summary=None, **config):
    """A run's folder with its predictions."""
    keys = {"client_names": list(cases), "class_names": ["well", "ill"], "num_clients": len(cases)} | config
    write_run(folder, summary or summary_of_cases(cases), fold=fold, **keys)
    (folder / "predictions.parquet").write_bytes(predictions_file((cases, columns(groups, fold))))
    return folder


def write_sweep_of_cases(folder, methods, groups=None, **config):
    """A sweep of one seed, a run for each strategy."""
    lines = ["strategy,client,objective,seed,status,seconds,failures,accuracy: mean over examples,folder"]
    for strategy, cases in methods.items():
        name = f"{strategy}-fedbn-plain-seed0"
        lines.append(f"{strategy},fedbn,plain,0,ok,1.5,0,{accuracy(cases)},{name}")
        write_cases(folder / name, cases, groups, strategy=strategy, **config)
    (folder / "grid.csv").write_text("\n".join(lines) + "\n")
    (folder / "experiment.json").write_text(json.dumps({"strategy": list(methods)} | CONFIG))
    return folder
