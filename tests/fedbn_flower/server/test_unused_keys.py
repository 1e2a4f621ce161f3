"""Keys that a run was given and that nothing reads: told in one line, and in ``config.json``."""

import json
import tomllib

import numpy as np
import pytest
from PIL import Image

from fedbn_flower import cli
from fedbn_flower.config.keys import RUN_KEYS
from fedbn_flower.config.making import run_config
from fedbn_flower.config.named_algorithms import built_in_settings
from fedbn_flower.core.errors import UserError
from fedbn_flower.job.checks.unused_keys import FLOWER, SEARCH, SIMULATION, UNREAD, given_keys
from fedbn_flower.names import APP
from fedbn_flower.server.federation import Federation

TEN = {"num_clients": 10, "partition": "iid"}
NOBODY = {"fraction_evaluate": 0.0}
LEARNT = {"client": "shared"}
FEDPROTO = {"client": "alone", "objective": "fedproto", "strategy": "fedproto"}
EXAMPLE = {
    **{"dp": "example", "dp_noise": 1.0, "dp_delta": 1e-3, "model": "linear", "client": "shared"},
    **{"dp_metrics": 1.0, "partition": "iid"},
}
SITES = {"dataset": "shape:1x8x8:10", "model": "mlp-bn"}
AT_SITES = {**SITES, "caller": FLOWER}

CASES = {
    "predictions": ({"predictions": "on", **LEARNT, **NOBODY}, {"fraction_evaluate": 1.0}),
    "thresholds": ({"thresholds": 50, "metrics": "f1"}, {"metrics": "f1,auroc"}),
    "thresholds without metrics": ({"thresholds": 50}, {"metrics": "sensitivity-at:0.9"}),
    "thresholds of torchmetrics": ({"thresholds": 50, "metrics": "cohen-kappa"}, {"metrics": "auroc"}),
    "surface-tolerance": (
        {"surface_tolerance": 2.0, **AT_SITES, "client": "shared"},
        {"dataset": "shape:1x8x8:2:masks", "model": "unet"},
    ),
    "workers": ({"workers": 2, "backend": "inline"}, {"backend": "ray"}),
    "workers of Flower": ({"workers": 2, "caller": FLOWER}, {"caller": SIMULATION}),
    "ray-address": ({"ray_address": "127.0.0.1:1", "backend": "inline"}, {"backend": "auto"}),
    "round-timeout": ({"round_timeout": 9.0, "backend": "inline"}, {"backend": "auto"}),
    "node-timeout": ({"node_timeout": 9.0}, {"caller": FLOWER}),
    "memory-name": ({"memory_name": "other"}, {"caller": FLOWER}),
    "memory-name of nobody": ({"memory_name": "other", "caller": FLOWER, **LEARNT}, {"client": "fedbn"}),
    "keep-memories": ({"keep_memories": 2}, {"caller": FLOWER}),
    "continue-state": ({"continue_state": True, "caller": FLOWER, **LEARNT}, {"client": "fedbn"}),
    "backend": ({"backend": "ray", "caller": FLOWER}, {"caller": SIMULATION}),
    "verbose": ({"verbose": True, "caller": FLOWER}, {"caller": SIMULATION}),
    "fast": ({"fast": "off", "caller": FLOWER}, {"caller": SIMULATION}),
    "client-momentum": ({"client_momentum": 0.9, "client_optimizer": "adam"}, {"client_optimizer": "sgd"}),
    "weight-decay": ({"weight_decay": 0.1, "client_optimizer": "rprop"}, {"client_optimizer": "adam"}),
    "drop-stragglers": ({"drop_stragglers": True}, {"stragglers": 0.5}),
    "selection": ({"selection": "by-size", "weighting": "num-examples", **TEN}, {"fraction_train": 0.5}),
    "fraction-evaluate": ({"fraction_evaluate": 0.5, "eval_model": "local"}, {"eval_model": "aggregated"}),
    "fraction-evaluate under dp": ({**EXAMPLE, "fraction_evaluate": 0.5, "dp_metrics": 0}, {"dp_metrics": 1}),
    "fraction-evaluate of 0": ({"fraction_evaluate": 0.5, **EXAMPLE, "dp_metrics": 0}, NOBODY),
    "fraction-evaluate 0": ({"fraction_evaluate": 0.5, "eval_model": "local"}, NOBODY),
    "dp-metrics": ({**EXAMPLE, "fraction_evaluate": 0.0}, {"fraction_evaluate": 1.0}),
    "evaluate-with-training": ({"evaluate_with_training": "off"}, {"caller": FLOWER}),
    "evaluate-with-training of nobody": (
        {"evaluate_with_training": "off", "caller": FLOWER, "fraction_evaluate": 0.0},
        {"fraction_evaluate": 0.5},
    ),
    "evaluate-with-training of local ones": (
        {"evaluate_with_training": "off", "caller": FLOWER, "eval_model": "local"},
        {"eval_model": "aggregated"},
    ),
    "decide-by": ({"decide_by": "median"}, {"caller": SEARCH}),
    "decide-by and patience": ({"decide_by": "mean", "val_fraction": 0.2}, {"patience": 2}),
    "decide-by and a target": ({"decide_by": "mean", "target": "accuracy=1"}, {"stop_at_target": True}),
    "moon-temperature": ({"moon_temperature": 0.2, "objective": "moon", "mu": 0}, {"mu": 1}),
    "ntd-temperature": ({"ntd_temperature": 2, "objective": "fedntd", "ntd_beta": 0}, {"ntd_beta": 1}),
    "eval-data": ({"eval_data": "local", "fraction_evaluate": 0.0, **LEARNT}, {"fraction_evaluate": 1.0}),
    "eval-data of the server": (
        {"eval_data": "local", "fraction_evaluate": 0.0, **LEARNT},
        {"eval_data": "global"},
    ),
    "fine-tune": ({"fine_tune": 2, "fraction_evaluate": 0.0, **TEN, **LEARNT}, {"holdout_clients": 2}),
    "evaluate-every": ({"evaluate_every": 2, "fraction_evaluate": 0.0}, {"client": "shared"}),
    "metrics": ({"metrics": "f1", "fraction_evaluate": 0.0}, {"fraction_evaluate": 0.5}),
    "metrics of new clients": ({"metrics": "f1", **NOBODY, **TEN}, {"holdout_clients": 2}),
    "target": ({"target": "accuracy=1", "fraction_evaluate": 0.0}, LEARNT),
    "final-test": ({"final_test": False, "val_fraction": 0.2, "fraction_evaluate": 0.0}, LEARNT),
    "norm": ({"norm": "group:2", "model": "2nn", **LEARNT}, {"model": "mlp-bn"}),
    "norm of any model": ({"norm": "layer", "model": "2nn", **LEARNT}, {"norm": "scaled-ws"}),
    "bn-momentum": ({"bn_momentum": 0.5, "model": "2nn", **LEARNT}, {"model": "mlp-bn"}),
    "bn-momentum without": ({"bn_momentum": 0.5, "norm": "layer", **LEARNT}, {"norm": "keep"}),
    "adapt-bn": ({"adapt_bn": True, "model": "2nn", **LEARNT}, {"model": "mlp-bn"}),
    "adapt-bn of nobody": ({"adapt_bn": True, **NOBODY, **LEARNT}, {"fraction_evaluate": 1.0}),
    "fix-from": ({"fix_from": 3, "client": "fixbn"}, {"rounds": 3}),
    "fix-from without": ({"fix_from": 1, "client": "fixbn", "model": "2nn"}, {"model": "mlp-bn"}),
    "fbn-momentum": ({"fbn_momentum": 0.5, "client": "fbn", "model": "2nn"}, {"model": "mlp-bn"}),
    "hbn-momentum": ({"hbn_momentum": 0.5, "client": "hbn", "model": "2nn"}, {"model": "mlp-bn"}),
    "agc": ({"agc": 0.1, "model": "linear", **LEARNT}, {"model": "2nn"}),
    "frozen-bn": ({"frozen_bn": "adapt", **LEARNT}, {"freeze": "1,2"}),
    "compress": ({"compress": "topk:0.5", **FEDPROTO}, {"client": "shared"}),
    "error-feedback": ({"error_feedback": "off", "compress": "sign", **FEDPROTO}, {"client": "shared"}),
    "compress-down": ({"compress_down": "bf16", **FEDPROTO}, {"client": "shared"}),
    "server-lr": ({"server_lr": 0.5, **FEDPROTO}, {"client": "shared"}),
    "server-momentum": ({"server_momentum": 0.5, **FEDPROTO}, {"client": "shared"}),
    "clip-update-norm": ({"clip_update_norm": 5, **FEDPROTO}, {"client": "shared"}),
    "partition": ({"partition": "dirichlet:1", **AT_SITES}, {"dataset": "digits"}),
    "cache-dir": ({**AT_SITES, "cache_dir": "here"}, {"dataset": "digits"}),
    "eval-data of sites": ({"eval_data": "global", **AT_SITES}, {"dataset": "digits"}),
}  # fmt: skip
"""By the key, keys of which nothing reads it, and what to add so that something does, if anything can be."""


@pytest.fixture
def told_of(cache_dir, tmp_path, monkeypatch):
    """The keys that a run is told nothing reads."""
    monkeypatch.chdir(tmp_path)

    def unused(caller=SIMULATION, **keys):
        small = {"rounds": 2, "local_epochs": 1, "batch_size": 128}
        cache = {} if "shape:" in keys.get("dataset", "") else {"cache_dir": str(cache_dir)}
        values = {key.replace("_", "-"): value for key, value in {**small, **cache, **keys}.items()}
        return set(Federation(run_config(values), caller).unused)

    return unused


@pytest.mark.parametrize("name", CASES)
def test_a_key_is_told_where_nothing_reads_it_and_only_there(name, told_of):
    key, (without, added) = name.partition(" ")[0], CASES[name]
    both = {"error-feedback": {"compress"}}
    assert told_of(**without) == {key} | both.get(key, set())
    assert key not in told_of(**{**without, **added})


def test_every_key_of_the_tables_has_a_case():
    keys = {key for text, _ in UNREAD for key in text.split()}
    known = {*RUN_KEYS, *built_in_settings()}
    assert keys <= known
    # Without metrics that one is refused; of tables there are tests below.
    assert keys - {name.partition(" ")[0] for name in CASES} == {"metrics-by-class", "dp-scale", "subgroups"}


@pytest.fixture
def table(tmp_path):
    """The keys of a table of 60 rows."""
    rows = ["age,bmi,label", *(f"{i},{i % 7},{i % 2}" for i in range(60))]
    (tmp_path / "table.csv").write_text("\n".join(rows))
    return {"dataset": str(tmp_path / "table.csv"), "columns": "age,bmi", "label_column": "label=0|1"}


def test_a_public_scale_is_of_tables(told_of, table):
    assert told_of(**EXAMPLE, dp_scale="age=1:2") == {"dp-scale"}
    assert not told_of(**EXAMPLE, dp_scale="age=1:2", **table)


def test_subgroups_are_of_clients_that_evaluate(told_of, table):
    pytest.importorskip("fedbn_flower.study")
    assert told_of(**table, subgroups="age>=30", client="shared", fraction_evaluate=0.0) == {"subgroups"}
    assert not told_of(**table, subgroups="age>=30", client="shared")


GIVEN = {"thresholds": 50, "drop_stragglers": True, "workers": 2, "backend": "inline"}
LINE = (
    "unused: nothing in this run reads drop-stragglers true (stragglers is 0), thresholds 50 (no metric goes "
    "by thresholds), workers 2 (clients run in this process)"
)


def test_one_line_tells_of_all_before_the_first_round_and_config_json_lists_them(run, caplog):
    folder = run(**GIVEN, rounds=1).folder
    assert [record.message for record in caplog.records if "unused" in record.message] == [LINE]
    written = json.loads((folder / "config.json").read_text())
    assert written["unused"] == ["drop-stragglers", "thresholds", "workers"]
    assert LINE in written["warnings"]


def test_a_dry_run_tells_of_them_once_for_all_runs_of_a_sweep(capsys, cache_dir):
    pytest.importorskip("fedbn_flower.sweeps")
    words = f"--rounds 1 --drop-stragglers true --sweep seed=0,1 --cache-dir {cache_dir} --dry-run"
    assert cli.main(words.split()) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert output.count("unused: nothing in this run reads drop-stragglers true (stragglers is 0)") == 1


def test_of_the_default_job_and_the_keys_of_pyproject_nothing_is_told():
    keys = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    for values in ({}, keys):
        config = run_config(values)
        assert not given_keys(config, SIMULATION)
        for caller in (SIMULATION, SEARCH, FLOWER):
            assert not Federation(config, caller).unused


def test_what_resuming_sets_is_not_told(run):
    folder = run(rounds=2, checkpoint_every=1, fraction_evaluate=0.0).folder
    again = run(resume=str(folder), rounds=3).folder
    assert json.loads((again / "config.json").read_text())["unused"] == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("missing_values", "NA"),
        ("encoding", "cp1252"),
        ("decimal", ","),
        ("thousands", "."),
        ("header_row", 2),
        ("date_format", "%Y-%m-%d"),
    ],
)
def test_keys_of_how_a_table_is_written_are_of_tables(run, tmp_path, key, value):
    for name in "ab":
        (folder := tmp_path / "train" / name).mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "1.png")
    x, y = np.zeros((9, 1, 8, 8), np.uint8), np.arange(9) % 3
    for data in ({}, {"dataset": str(tmp_path)}, {"data": (x, y, x, y)}):
        default, name = RUN_KEYS[key.replace("_", "-")].default, key.replace("_", "-")
        with pytest.raises(UserError, match=rf"^{name}: {value!r} is not allowed; expected {default!r}: .*"):
            run(**{key: value}, **data)
