"""What secure aggregation does not go with, and what a site demands of it: one line each, before anything."""

import csv
import html
import json
from importlib.metadata import version

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedbn_flower.core.errors import UserError
from fedbn_flower.privacy.floors import check_secagg
from fedbn_flower.results.report.run_page import run_page
from fedbn_flower.results.run_reader import Run
from fedbn_flower.runtime.grid import identify_process, node_context
from fedbn_flower.site.adapter import app

REFUSED = {
    "mean": ("median", "'weighted': a robust mean looks at single answers with secagg 'on'"),
    "compress": ("bf16", "'none': codes do not add"),
    "compress_down": ("bf16", "compress-down: 'bf16' is not allowed; expected 'none'"),
    "selection": ("by-size", "'uniform'"),
    "normalize": (True, "false: each client's own statistics would be told"),
    "holdout_clients": (1, "0: new clients are measured one by one"),
    "decide_by": ("median", "a median is of single clients"),
    "predictions": ("on", "scores tell of single examples"),
    "clip_update_norm": (0, "a number from 1e-30 to 1e+30, the bound on an update"),
    "dp_clip": (1e-300, "a number from 1e-30 to 1e+30, the bound on an update"),
    "secagg_min": (6, "at most 5, the clients that train in a round"),
    "secagg_bits": (1, "0, or from 2 to 30"),
    "secagg_threshold": (2, "0, or from 3 to 5: more than half of the 5 clients that train and of the 5"),
    "protocol": ("fedbuff:2", "'sync': an answer's weight depends on its staleness"),
    "attack": ("label-flip+alie:1", "it follows from the others' answers, which nobody sees"),
    "client": ("fbn", "it sends moments that are pooled"),
    "fraction_evaluate": (0.4, "0, or a share of at least 3 clients (secagg-min): metrics are sums too"),
    "evaluate_every": (1, "0, or from 3 to 3: more than half of the 5 clients that train and of the 3"),
    "max_num_examples": (0, "the largest number of examples of a site, by which it is weighed"),
    "fraction_train": (0.4, "secagg-min: the default 3 is not allowed; expected at most 2"),
}
FITTING = {
    "protocol": {"concurrency": 3, "devices": "none", "weighting": "uniform"},
    "client": {"model": "mlp-bn"},
    "evaluate_every": {"fraction_evaluate": 0.6, "secagg_threshold": 5},
    "strategy": {"objective": "fedsat"},
    "max_num_examples": {"dataset": "shape:1x8x8:10"},
    "dp_clip": {"dp": "client", "dp_noise": 1.0, "dp_delta": 1e-3, "clip_update_norm": 0.0},
}


@pytest.mark.parametrize("key", REFUSED)
def test_what_it_does_not_go_with_is_one_line(configured, key):
    value, why = REFUSED[key]
    keys = {
        "secagg": "on",
        "clip_update_norm": 1.0,
        "partition": "iid",
        "num_clients": 5,
        **FITTING.get(key, {}),
    }
    with pytest.raises(UserError) as refused:
        configured(**{**keys, key: value})
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_each_client_evaluates_by_itself_is_no_sum_of_too_few(configured):
    keys = {"secagg": "on", "clip_update_norm": 1.0, "partition": "iid", "num_clients": 5}
    assert configured(**keys, fraction_evaluate=0.4, eval_model="local", client="alone").secagg == "on"


def test_a_threshold_that_is_told_is_one_that_is_taken(configured):
    keys = {"secagg": "on", "clip_update_norm": 1.0, "partition": "iid", "num_clients": 10}
    for shares, taken in ({"fraction_evaluate": 0.8}, {6, 7, 8}), ({"fraction_train": 0.5}, set()):
        for threshold in range(1, 12):
            if threshold in taken:
                configured(**keys, **shares, secagg_threshold=threshold)
                continue
            told = f"0, or from {min(taken)} to {max(taken)}:" if taken else "0: no number is more than half"
            with pytest.raises(UserError, match=f"secagg-threshold: {threshold} is not allowed") as refused:
                configured(**keys, **shares, secagg_threshold=threshold)
            assert f"expected {told}" in str(refused.value)


def test_rules_that_read_single_answers_are_refused(configured):
    keys = {"clip_update_norm": 1.0, "partition": "iid", "num_clients": 5}
    keys |= {"client_optimizer": "sgd", "client_momentum": 0.0}
    with pytest.raises(UserError, match="strategy: .* post_processes_mean = True") as refused:
        configured(secagg="plain", strategy="fednova", **keys)
    assert "\n" not in str(refused.value)


def test_its_keys_are_of_no_use_without_it(configured):
    with pytest.raises(UserError, match="secagg-min: 4 is not used without secagg; give secagg=on or plain"):
        configured(secagg_min=4)


def test_a_site_refuses_a_run_that_asks_for_less(configured):
    """What else it refuses is `test_signed_runs`'s."""
    keys = {"clip_update_norm": 1.0, "partition": "iid", "num_clients": 5}
    runs = {"off": configured(), **{mode: configured(secagg=mode, **keys) for mode in ("plain", "on")}}
    for mode in ("off", "plain"):
        why = rf"secagg: '{mode}' is not allowed at this site; expected 'on' \(secagg-required"
        with pytest.raises(UserError, match=why):
            check_secagg({"secagg-required": True}, runs[mode])
    check_secagg({"secagg-required": False}, runs["off"])
    check_secagg({"secagg-required": True, "secagg-min": 3}, runs["on"])


@pytest.mark.slow
def test_groups_sum_integers_where_they_train(run, tmp_path):
    """Sixteen clients in two groups: masked or not, the bits are the same. In lockstep: integration."""
    keys = {"num_clients": 16, "partition": "iid", "clip_update_norm": 1.0, "fast": "off", "rounds": 1}
    plain, masked = (
        run(secagg=mode, run_dir=str(tmp_path / mode), track="none", **keys) for mode in ("plain", "on")
    )
    models = [one.model(client=3).state_dict() for one in (plain, masked)]
    assert all(models[0][name].equal(models[1][name]) for name in models[0])
    assert plain.history["train-loss"].tolist() == masked.history["train-loss"].tolist()


@pytest.mark.parametrize("reference", ["alone", "pooled"])
def test_references_have_no_sums(configured, reference):
    keys = {"secagg": "on", "clip_update_norm": 1.0, "partition": "iid", "num_clients": 5}
    assert configured(reference=reference, **keys).secagg == "off"


@pytest.mark.parametrize("query", ["counts", "moments"])
def test_a_site_tells_no_statistics_of_its_data(configured, query):
    """Whatever the server asks: this one has its own words for the run."""
    config = configured(secagg="on", clip_update_norm=1.0, partition="iid", num_clients=5)
    identify_process()
    context = node_context(0, 5, config.to_user_config())
    content = RecordDict({"config": ConfigRecord({})})
    answer = app(Message(content, context.node_id, f"query.{query}"), context)
    assert answer.error.reason == f"secagg: this site tells no {query} of its data, which is in sums alone"


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("on", "Sums were of 4 clients; one of fewer than 3 would not have been unmasked."),
        ("plain", "Nobody was protected by this."),
    ],
)
def test_the_files_of_a_run_have_sums_only_and_its_report_says_what_the_server_saw(run, tmp_path, mode, said):
    folder = tmp_path / "run"
    keys = {"num_clients": 4, "partition": "iid", "clip_update_norm": 1.0, "metrics": "auroc", "fast": "off"}
    run(secagg=mode, run_dir=str(folder), **keys)
    rows = list(csv.DictReader((folder / "metrics.csv").open()))
    assert [row["replies"] for row in rows] == ["4", "4"]
    assert all(row["accuracy"] and row["client-mean-accuracy"] and row["pooled-auroc"] for row in rows)
    assert not any(row["worst-client-auroc"] for row in rows)
    assert list(csv.DictReader((folder / "clients.csv").open())) == []
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["clients"] == {}
    assert summary["mean"]["accuracy"] == float(rows[-1]["accuracy"])
    assert summary["pooled"]["auroc"] == float(rows[-1]["pooled-auroc"])
    page = " ".join(html.unescape(run_page(Run.read(folder))).split())
    assert "What the server saw" in page
    assert said in page
    assert "secagg, mode" not in page  # which would say it twice
    assert ("cryptography" in summary["extensions"]["secagg"]) == (mode == "on")
    if mode == "on":
        assert f"made by cryptography {version('cryptography')}, and shares by pycryptodome" in page
