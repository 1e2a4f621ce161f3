"""Several runs in one ``flwr run``: the bits, the ledgers and the figures of this process.

That the app is started by itself, with its keys from the command line, is `test_wheel`'s; examples that sites
protect are `test_warm_sites`'s.
"""

import contextlib
import io
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

pytest.importorskip("fedbn_flower.consortium")

from fedbn_flower.config.making import run_config
from fedbn_flower.consortium.local import LocalFederation
from fedbn_flower.privacy import keys
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation

from .processes import bits
from .test_measures import BUFFERED, EVERY, OF_NUMBERS, SETTINGS, TIME_AND_BYTES, late_in, output
from .test_privacy import DP, LOCAL, SECURE, outcomes
from .test_robust import KEYS as ATTACKED

pytestmark = pytest.mark.slow

APP = Path(__file__).parent / "flower_apps" / "several.py"
CLIENTS = BUFFERED["num-clients"]
PRIVATE = {"secure": SECURE, "local": LOCAL, "in a masked sum": {"secagg": "on", "client": "silobn"}}
OF_SCANNERS = {
    "dataset": "scanners", "num-clients": CLIENTS, "rounds": 2, "partition": "iid", "fraction-train": 0.6,
    "client": "shared",
}  # fmt: skip
OF_SITES = {**BUFFERED, "partition": "natural:site"}
del OF_SITES["num-clients"]
RUNS = {
    name: {**DP, "strategy": "fedadam", "num-clients": CLIENTS, "rounds": 2, **sampled}
    for name, sampled in PRIVATE.items()
} | {
    "attacked": {
        **ATTACKED,
        "dataset": "digits",
        "num-clients": CLIENTS,
        "attack": "backdoor:3",
        "attackers": "1",
    },
    "buffered": {**OF_SITES, "normalize": True, "metrics": ",".join(sorted(OF_NUMBERS))},
}
FINDINGS = ("odd", "large", "nine")
RUNS["measured"] = SETTINGS | TIME_AND_BYTES | {
    "label-column": ",".join(FINDINGS), "problem": "multi-label", "metrics-by-class": True,
    "metrics": EVERY.removesuffix(",cohen-kappa"), "client": "silobn+ditto", "loss": "weighted-bce",
    "fine-tune": 2, "partition": "iid", "track": "tensorboard",
}  # fmt: skip
RUNS |= {
    "fedtan": OF_SCANNERS | {"strategy": "fedtan", "objective": "fedtan", "fast": "off"},
    "ifca": OF_SCANNERS | {"strategy": "ifca", "clusters": 3},
}


@pytest.fixture(scope="module")
def several(undrawn_project, tmp_path_factory):
    """A folder with the project as an app of several runs."""
    folder = tmp_path_factory.mktemp("several") / "fedbn-flower"
    shutil.copytree(undrawn_project, folder)
    shutil.copy(APP, folder)
    project = folder / "pyproject.toml"
    text = project.read_text()
    for old, new in (
        ('"fedbn_flower.server_app:app"', '"several:server"'),
        ('"fedbn_flower.client_app:app"', '"several:client"'),
        ("[tool.flwr.app.config]\n", '[tool.flwr.app.config]\nseveral = ""\n'),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    project.write_text(text)
    return folder


def write_numbers(path):
    """Write a table with numbers to predict, of as many sites as there are clients."""
    digits = load_digits()
    table = (
        pd.DataFrame(digits.data)
        .add_prefix("pixel")
        .assign(label=digits.data.mean(1) / 16, site=np.arange(len(digits.data)) % CLIENTS)
    )
    table.to_csv(path, index=False)
    return str(path)


def write_findings(path):
    """Write a table with several labels, a rare one among them."""
    digits = load_digits()
    table = pd.DataFrame(digits.data.astype(int)).add_prefix("pixel")
    found = (digits.target % 2, digits.target > 4, digits.target == 9)
    table.assign(**dict(zip(FINDINGS, found, strict=True))).to_csv(path, index=False)
    return str(path)


@pytest.fixture(scope="module")
def done(several, flwr_run, cache_dir, tmp_path_factory, pictures_never_drawn):
    """Of each run by its name the folder of this process, and Flower's; how Flower's ended. The last run of
    all is a mistake."""
    place = tmp_path_factory.mktemp("runs")
    of_files = {
        "buffered": {"dataset": write_numbers(place / "numbers.csv")},
        "measured": {"dataset": write_findings(place / "findings.csv"), **late_in(place)},
    }
    pairs = {name: (place / "here" / name, place / "flower" / name) for name in RUNS}
    configs = []
    for name, (here, there) in pairs.items():
        run = {**RUNS[name], "cache-dir": str(cache_dir), **of_files.get(name, {})}
        simulate(Federation(run_config(run)), here, None)
        configs.append(run | {"run-dir": str(there)})
    never = place / "never"
    (place / "several.json").write_text(json.dumps([*configs, {"strategy": "fedyog", "run-dir": str(never)}]))
    federation = LocalFederation(place)
    federation.environment = flwr_run.environment
    before = federation.runs()
    text = flwr_run({"several": place / "several.json"}, CLIENTS, app=several, workers=2)
    assert all((there / "summary.json").exists() for _, there in pairs.values()), text
    with contextlib.redirect_stderr(io.StringIO()) as told:
        complete = federation.all_complete(but=before)
    return SimpleNamespace(
        folders=pairs, never=never, text=text, status=flwr_run.status, complete=complete, told=told.getvalue()
    )


@pytest.fixture
def folders(done):
    return done.folders


def test_a_mistake_is_one_line_and_a_run_that_failed(done):
    """``flwr run`` itself ends well; the federation of the tool for one machine tells that it did not."""
    assert done.status == 0
    assert "did you mean 'fedyogi'?" in done.text
    assert "Traceback" not in done.text
    assert not done.never.exists()
    assert not done.complete
    assert re.fullmatch(r"run \d+: finished:failed\n", done.told)


@pytest.mark.parametrize("name", PRIVATE)
def test_the_same_model_and_ledger_and_the_key_nowhere(folders, name):
    here, flower = folders[name]
    assert len(outcomes([here, flower])) == 1
    assert not list(flower.rglob(keys.NAME))  # of a seed there is none
    assert json.loads((flower / "summary.json").read_text())["privacy"]["published"] == 2


def test_buffers(folders):
    """Of a table with numbers, which all clients standardise alike, with every metric of those. All of its
    sites take part; nobody has said how many these are."""
    here, there = map(output, folders["buffered"])
    assert there == here
    assert len(here[2]["clients"]) + len(here[2]["new-clients"]["clients"]) == CLIENTS
    assert max(int(row["staleness-max"]) for row in here[1][0]) > 1


def test_each_of_several_models(folders):
    """The same bits, and whose is which."""
    here, there = folders["ifca"]
    files = sorted(path.relative_to(here) for path in (here / "models").iterdir())
    assert len(files) > 2
    for file in (*files, "model.safetensors"):
        assert (there / file).read_bytes() == (here / file).read_bytes()


def test_a_rule_that_asks_before_the_training(folders):
    """For each layer forwards and backwards."""
    here, there = folders["fedtan"]
    assert bits(there) == bits(here)


def test_a_backdoor(folders):
    here, there = folders["attacked"]
    assert bits(here) == bits(there)
    attack = [json.loads((folder / "summary.json").read_text())["attack"] for folder in (here, there)]
    assert attack[0] == attack[1]
    assert attack[0]["attackers"] == [1]


OF_SCORES = ("auroc", "average-precision", "sensitivity-at")


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


def test_what_is_measured(folders):
    """With a loss of ours, and clients that keep models of their own and fine-tune them; a tracker gets the
    same."""
    here, there = folders["measured"]
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
