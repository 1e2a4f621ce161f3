"""Every two features: refused in one line, or the same bits where the run was killed and went on.

Every two names of algorithms: `test_combinations`, and, where all clients answer, that of `integration`.
"""

import csv
import json
import re
from itertools import combinations

import pytest

from fedbn_flower.core.errors import RunFailed, UserError

from ..server.test_participation import MIXED
from ..server.test_personal_runs import CLIENTS, OBJECTIVES, UNIONS, keys_of
from ..server.test_robust_runs import KEYS as ROBUST
from ..server.test_robust_runs import MEANS
from ..server.test_rules_in_runs import RULES
from ..server.test_unfreeze import UNFROZEN

DEVICES = {"devices": "lognormal:0.5"}
VALIDATION = {"val_fraction": 0.2}
DP = {"dp_noise": 1.0, "dp_delta": 1e-3, "dp_clip": 1.0}
MASKED = {"clip_update_norm": 5.0, "max_num_examples": 500}
FEATURES = {
    "top-k with feedback": {"compress": "topk:0.1", "error_feedback": "on"},
    "top-k without": {"compress": "topk:0.1", "error_feedback": "off"},
    "qsgd": {"compress": "qsgd:8"},
    "sign": {"compress": "sign"},
    "low rank": {"compress": "lowrank:2"},
    "bf16 down": {"compress_down": "bf16"},
    "weights alone": {"train": "*weight*"},
    "unfreezing": {"freeze": "*bias*", "unfreeze_at": 2},
    "frozen BatchNorm": {"freeze": "*bias*", "frozen_bn": "adapt"},
    "dropout": {"dropout": 0.3},
    "stragglers": {"stragglers": 0.5},
    "dropped stragglers": {"stragglers": 0.5, "drop_stragglers": True},
    "availability": {"availability": "cycle:3,2"},
    "devices": DEVICES,
    "deadline": DEVICES | {"round_deadline": 30.0},
    "fedbuff": DEVICES | {"protocol": "fedbuff:2", "concurrency": 3},
    "fedasync": DEVICES | {"protocol": "fedasync", "concurrency": 3},
    "dp client": DP | {"dp": "client"},
    "dp local": DP | {"dp": "local"},
    "dp example": DP | {"dp": "example", "model": "linear"},
    "secagg": MASKED | {"secagg": "on"},
    "sums in the open": MASKED | {"secagg": "plain"},
    "sign flip": {"attack": "sign-flip:2", "attackers": 1},
    "label flip": {"attack": "label-flip", "attackers": 1},
    "local models": {"eval_model": "local"},
    "all test examples": {"eval_data": "global"},
    "fine-tuning": {"fine_tune": 1},
    "adapted BatchNorm": {"adapt_bn": True},
    "some evaluate": {"fraction_evaluate": 0.5},
    "some train": {"fraction_train": 0.5},
    "a client left out": {"holdout_clients": "1"},
    "patience": VALIDATION | {"patience": 3},
    "target": {"target": "accuracy=0.2"},
    "validation": VALIDATION,
    "recalibration": VALIDATION | {"recalibrate": "temperature"},
    "predictions": {"predictions": "on"},
    "selection": {"selection": "power-of-choice:4", "fraction_train": 0.5},
    "schedule": {"client_lr_schedule": "cosine"},
    "median": {"mean": "median"},
    "krum": {"mean": "krum:1", "num_clients": 5},
    "clipping": {"clip_update_norm": 1.0},
    "own extension": {"extension": "update-norm"},
    "folds": {"folds": 3, "fold": 1},
    "bf16": {"precision": "bf16"},
    "Adam": {"client_optimizer": "adam"},
    "AUROC": {"metrics": "f1,auroc"},
    "by class": {"metrics": "f1", "metrics_by_class": True},
    "cross-fitting": {"best": "cross-fitted", "metrics": "auroc", "client_lr": 0.3, "eval_data": "local"},
    "normalize": {"normalize": True},
    "scaffold": {"strategy": "scaffold", "objective": "scaffold"},
    "feddyn": {"strategy": "feddyn", "objective": "feddyn"},
    "fedproto": {"strategy": "fedproto", "objective": "fedproto", "client": "alone"},
    "fedpac": {"strategy": "fedpac", "client": "fedpac"},
    **{name: {"strategy": name} for name in ("ifca", "fedamp", "qfedavg", "fedexp", "fedyogi", "fednova")},
    **{name: {"client": name} for name in ("fedbn", "silobn", "ditto", "fedper")},
    "moon": {"objective": "moon"},
}
ALGORITHMS = list(FEATURES)[-15:]
PARTLY = {"fraction_train": 0.5, "dropout": 0.3}
SCANNERS = {
    "dataset": "scanners",
    "client": "shared",
    "num_clients": 4,
    "fraction_train": 0.75,
    "dropout": 0.2,
}
ALONE = {
    **{rule: PARTLY | {"strategy": rule, "client": "fedbn"} | keys for rule, keys in RULES.items()},
    **{name: PARTLY | keys_of(name) for name in (*CLIENTS, *UNIONS, *OBJECTIVES)},
    **{
        f"unfreezing from the first round that is done again: {name}": {"train": "4", "unfreeze_at": 3} | keys
        for name, keys in UNFROZEN.items()
    },
    **{mean: ROBUST | {"mean": mean, "fraction_train": 0.7, "dropout": 0.2} for mean in MEANS},
    "a head of each client": SCANNERS | {"strategy": "ifca", "client": "fedper"},
    **{
        f"{rule} among devices": MIXED | {"strategy": rule, "objective": rule, "partition": "iid"}
        for rule in ("scaffold", "feddyn")
    },
    **{
        f"the best of {rule}": PARTLY | VALIDATION | {"patience": 5, "strategy": rule} | RULES[rule]
        for rule in ("fedexp", "fedacg")
    },
}
"""What is not combined with the others; answers are lost. Of every other name one resumed run is
`test_combinations`'s, of `integration`."""
QUICK = {"fixbn+apfl"}
EXHAUSTIVE = {*RULES, *CLIENTS, *UNIONS, *OBJECTIVES, *MEANS} - QUICK - {"centered-clip:0.2"}
NOISY = {"dp client", "dp local", "dp example"}
"""Their noise, and who is drawn, are others in every run, by a secret."""
SUMMARY = (
    "best-round",
    "client-mean",
    "clients",
    "cross-fitted",
    "failures",
    "global",
    "pooled",
    "recalibrated",
    "rounds",
)
KEYS_ANEW = {"secagg"}
"""Who goes on agrees on keys once more, so more bytes travel."""


def pairs():
    """All but those of two algorithms and those that want two values of one key."""
    for one, other in combinations(FEATURES, 2):
        shared = FEATURES[one].keys() & FEATURES[other].keys()
        alike = all(FEATURES[one][key] == FEATURES[other][key] for key in shared)
        if alike and not {one, other} <= {*ALGORITHMS}:
            yield one, other


CASES = [(name,) for name in FEATURES] + list(pairs())
HALF, TURN = len(FEATURES) // 2, 25
TOGETHER = {(one, [*FEATURES][HALF + (i + TURN) % HALF]) for i, one in enumerate([*FEATURES][:HALF])}
"""Each feature with another, none refused: for every change. By itself, and with each other: exhaustive."""
UNSEEN = {(name,) for pair in TOGETHER if NOISY & {*pair} for name in {*pair} - NOISY}
"""By itself is tried, too, what noise would hide."""


def marked():
    for names in CASES:
        yield pytest.param(
            names, marks=pytest.mark.slow if names in TOGETHER | UNSEEN else pytest.mark.exhaustive
        )
    for name in ALONE:
        rare = pytest.mark.exhaustive if name in EXHAUSTIVE else pytest.mark.slow
        yield pytest.param((name,), marks=[] if name in QUICK else rare)


def found(folder, names):
    """Every kept model and case, to the last bit, and every row of every table, but for seconds."""
    files = [*folder.glob("*.safetensors"), *folder.glob("*.parquet"), *(folder / "models").glob("*")]
    models, tables = {path.name: path.read_bytes() for path in files}, {}
    hidden = re.compile("seconds|bytes" if KEYS_ANEW & {*names} else "seconds")
    for path in folder.glob("*.csv"):
        rows = list(csv.DictReader(path.open()))
        tables[path.name] = [{k: v for k, v in row.items() if not hidden.search(k)} for row in rows]
    assert all("secagg-min" in row["reason"] for row in tables["failures.csv"])  # too few did not drop out
    if NOISY & {*names}:
        return models.keys(), {name: rows and rows[0].keys() for name, rows in tables.items()}
    summary = json.loads((folder / "summary.json").read_text())
    return models, tables, {name: summary.get(name) for name in SUMMARY}


@pytest.mark.parametrize("names", list(marked()), ids=" and ".join)
def test_two_features_are_refused_in_a_line_or_go_on_in_the_same_bits(finished, tmp_path, killed, names):
    """From what a kill after the second checkpoint of three rounds leaves."""
    keys = {"num_clients": 4, "partition": "dirichlet:1", "seed": 3, "rounds": 3, "model": "mlp-bn"}
    for name in names:
        keys |= FEATURES[name] if name in FEATURES else ALONE[name]

    def run(folder, **more):
        finished(folder, **keys, **more)

    refused = ""
    try:
        run(tmp_path / "whole")
    except (UserError, RunFailed) as error:  # a run in which too few answered for the mean
        refused = str(error)
    may_be = len(names) == 2 and names not in TOGETHER
    assert len(refused.splitlines()) <= may_be, refused
    if refused:
        return
    run(killed, resume=str(killed))
    assert found(killed, names) == found(tmp_path / "whole", names)
