"""What a run tells of itself is the same on every runtime.

Of clients some of which are sampled, drop out, are late or are not there. Under ``flwr run`` it is
`test_one_flwr_run`'s.
"""

import csv
import json

import pytest

from clients import METRICS

from .processes import bits

pytestmark = pytest.mark.slow

OF_NUMBERS = {name for name, metric in METRICS.items() if metric.kinds == {"numbers"}}
OF_CLASSES = sorted(METRICS.keys() - OF_NUMBERS - {"sensitivity-at"})
EVERY = ",".join(["accuracy", *OF_CLASSES, "sensitivity-at:0.9", "cohen-kappa"])
"""Every metric of classes."""

SETTINGS = {
    "strategy": "scaffold", "objective": "scaffold", "client": "fedbn", "partition": "dirichlet:1",
    "num-clients": 6, "holdout-clients": 2, "rounds": 6, "val-fraction": 0.2, "evaluate-every": 2,
    "patience": 3, "target": "accuracy=0.3", "eval-data": "local",
    "metrics": EVERY,
    "freeze": "1", "unfreeze-at": 4,
    "client-lr-schedule": "warmup:2+cosine:0.1", "server-lr-schedule": "step:2:0.5",
}  # fmt: skip
LATE = {"fraction-train": 0.9, "stragglers": 0.5, "dropout": 0.2}
TIME_AND_BYTES = {
    "compress": "topk:0.3", "error-feedback": "on", "compress-down": "bf16",
    "selection": "power-of-choice:5", "devices": "phones",
}  # fmt: skip
BUFFERED = {
    "client": "fedbn", "partition": "dirichlet:1", "num-clients": 6, "holdout-clients": 1, "rounds": 6,
    "val-fraction": 0.2, "patience": 4, "eval-data": "local", "compress": "topk:0.3", "devices": "phones",
    "protocol": "fedbuff:3", "concurrency": 4, "metrics": "accuracy,ece",
}  # fmt: skip
TIMES = {"seconds", "seconds-per-round", "seconds-split", "client-updates-per-second"}
PLACE = {"runtime"}
ONLY_HERE = {"intervals"}
"""Of the cases, which no client of Flower's own grids sends."""


def output(folder):
    """All that tells neither the time nor the place."""
    names = ("metrics.csv", "clients.csv", "classes.csv")
    tables = [csv.DictReader((folder / name).open()) for name in names if (folder / name).exists()]
    rows = [[{k: v for k, v in row.items() if "seconds" not in k} for row in table] for table in tables]
    summary = json.loads((folder / "summary.json").read_text())
    for name in ONLY_HERE:
        summary.get("new-clients", {}).pop(name, None)
    states = (folder / "states.safetensors").read_bytes()
    return (
        (bits(folder), states),
        rows,
        {key: value for key, value in summary.items() if key not in TIMES | PLACE | ONLY_HERE},
    )


def late_in(folder):
    there = folder / "there.csv"
    there.write_text("partition-id,from,to\n0,2,3\n3,1,1\n3,4,4\n")
    return LATE | {"availability": str(there)}


@pytest.mark.parametrize(
    "fast", [{"fast": "off"}, {"fast": "auto", "drop-stragglers": True} | TIME_AND_BYTES]
)
def test_on_all_workers(fast, tmp_path, on_all_workers):
    """Inline and with one worker the answers are summed where they are made, with two they are not; in
    lockstep (``auto``) and one by one."""
    folders = on_all_workers(SETTINGS | late_in(tmp_path) | fast)
    expected, *others = map(output, folders)
    assert others == [expected] * 2
    assert len({(folder / "predictions.parquet").read_bytes() for folder in folders}) == 1
    assert expected[2]["bytes-received"] > 0
    assert len(expected[2]["new-clients"]["clients"]) == 2
    assert len({row["local-steps"] for row in expected[1][1]}) > 2


def test_buffers_on_all_workers(on_all_workers):
    """Clients of one call have one version of the model."""
    folders = on_all_workers(BUFFERED)
    expected, *others = map(output, folders)
    assert others == [expected] * 2
    assert len({(folder / "predictions.parquet").read_bytes() for folder in folders}) == 1
    assert max(int(row["staleness-max"]) for row in expected[1][0]) > 1
