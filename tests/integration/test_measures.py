"""What a run tells of itself is the same on every runtime.

Of clients some of which are sampled, drop out, are late or are not there.
"""

import csv
import json

import pandas as pd
import pytest
from sklearn.datasets import load_digits
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

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
OF_SCORES = ("auroc", "average-precision", "sensitivity-at")


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


def without_scores(found):
    """The same without the metrics of scores: exact where cases are known, else of thresholds."""
    if isinstance(found, dict):
        return {k: without_scores(v) for k, v in found.items() if not any(name in k for name in OF_SCORES)}
    return [*map(without_scores, found)] if isinstance(found, list | tuple) else found


def tracked(folder):
    """The numbers by round that TensorBoard has, but for the time."""
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    names = [name for name in events.Tags()["scalars"] if "seconds" not in name]
    assert "pooled-auroc-nine" in names
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in names}


@pytest.fixture
def late(tmp_path):
    there = tmp_path / "there.csv"
    there.write_text("partition-id,from,to\n0,2,3\n3,1,1\n3,4,4\n")
    return LATE | {"availability": str(there)}


@pytest.mark.parametrize(
    "fast", [{"fast": "off"}, {"fast": "auto", "drop-stragglers": True} | TIME_AND_BYTES]
)
def test_on_all_workers(fast, late, on_all_workers):
    """Inline and with one worker the answers are summed where they are made, with two they are not; in
    lockstep (``auto``) and one by one."""
    folders = on_all_workers(SETTINGS | late | fast)
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


def test_under_flwr_run(late, under_flwr_run, tmp_path):
    """Of a table with several labels, a rare one among them; with a loss of ours, and clients that keep
    models of their own and fine-tune them; a tracker gets the same."""
    digits = load_digits()
    table = pd.DataFrame(digits.data.astype(int)).add_prefix("pixel")
    findings = {"odd": digits.target % 2, "large": digits.target > 4, "nine": digits.target == 9}
    table.assign(**findings).to_csv(tmp_path / "digits.csv", index=False)
    own = {
        "dataset": str(tmp_path / "digits.csv"), "label-column": ",".join(findings), "problem": "multi-label",
        "metrics": EVERY.removesuffix(",cohen-kappa"), "metrics-by-class": True,
        "client": "silobn+ditto", "loss": "weighted-bce", "fine-tune": 2, "partition": "iid",
        "track": "tensorboard",
    }  # fmt: skip
    here, there = under_flwr_run(SETTINGS | late | own | TIME_AND_BYTES)
    expected, flower = output(here), output(there)
    assert without_scores(flower) == without_scores(expected)
    for name in ("auroc-nine", "average-precision-odd"):
        assert flower[2]["pooled"][name] == pytest.approx(expected[2]["pooled"][name], abs=0.01)
    assert [(folder / "predictions.parquet").exists() for folder in (here, there)] == [True, False]
    assert without_scores(tracked(there)) == without_scores(tracked(here))
    assert len({row["local-steps"] for row in expected[1][1]}) > 2
    assert len(expected[2]["new-clients"]["clients"]) == 2
    assert 0.5 < expected[2]["pooled"]["sensitivity-at:0.9-nine"] <= 1
    assert 0 < expected[2]["pooled"]["ece"] < 0.5
