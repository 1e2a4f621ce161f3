"""Cross-validation and leave-one-site-out: the runs of a sweep, and what their table says together."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from sklearn.metrics import accuracy_score, roc_auc_score

from fedbn_flower import UserError, cli
from fedbn_flower.cli.parser import parse_command_line
from fedbn_flower.config.keys import RUN_KEYS
from fedbn_flower.config.making import run_config
from fedbn_flower.data.splits.folds import folds_of
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.job.tasks import rows_of, task_of
from fedbn_flower.results.run_reader import Run
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.inputs import inputs_at
from fedbn_flower.sweeps.experiment import Experiment

from ...quick import diagonal_quick
from ..data.test_own_data import Sites
from ..privacy.test_units import write
from ..results.html_page import page
from ..results.written import csv_rows

FLAGS = (
    "--columns age,sex=f|m --label-column outcome --model mlp-bn --num-clients 3 --rounds 1 --backend inline"
)


@pytest.fixture
def patients(tmp_path):
    of_rows = np.repeat(np.arange(60), 1 + np.arange(60) % 5)
    return write(tmp_path / "patients.csv", np.random.default_rng(0).permutation(of_rows).tolist())


@pytest.fixture
def swept(cache_dir, patients, tmp_path, monkeypatch):
    """Runs a command line on the patients, in this process; its exit status."""
    monkeypatch.chdir(tmp_path)

    def run(words, folder="g"):
        given = f"{FLAGS} {words} --dataset {patients} --cache-dir {cache_dir} --run-dir {folder}"
        return cli.main(given.split())

    return run


# ---- who is tested on in which fold -----------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 8), min_size=2, max_size=40),
    folds=st.integers(2, 6),
    classes=st.integers(1, 4),
    seed=st.integers(0, 1000),
    grouped=st.booleans(),
)
def test_folds_are_never_empty_and_of_whole_groups(sizes, folds, classes, seed, grouped):
    rng = np.random.default_rng(seed)
    units = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    strata = rng.integers(0, classes, len(units))
    assume(folds <= (len(sizes) if grouped else len(units)))
    found = folds_of(strata, folds, seed, units if grouped else None, "folds")
    assert set(found.tolist()) == set(range(folds))
    if grouped:
        assert all(len(set(found[units == unit].tolist())) == 1 for unit in range(len(sizes)))
    elif np.bincount(strata).max() >= folds:
        by_class = np.array([[(found[strata == c] == f).sum() for f in range(folds)] for c in range(classes)])
        assert (np.ptp(by_class, 1) <= 1).all()


@pytest.mark.parametrize(
    ("partition", "group"), diagonal_quick(["iid", "natural:site", "dirichlet:2"], ["", "patient"])
)
def test_the_folds_of_each_client_are_its_rows(configured, patients, partition, group):
    """Whatever the fold, a client has the same rows; each is tested on once, and trained on in the others."""
    seen = {client: [] for client in range(3)}
    everything = {client: set() for client in range(3)}
    for fold in (1, 2, 3, 4):
        keys = {"dataset": patients, "label_column": "outcome", "columns": "age,sex", "num_clients": 3}
        keys |= {"group_column": group, "model": "mlp-bn", "partition": partition, "val_fraction": 0.2}
        inputs = inputs_of(configured(**keys, folds=4, fold=fold))
        assert inputs.evaluates_locally
        for client in seen:
            rows = rows_of(inputs, client)
            train, val, test = (set(rows[split].tolist()) for split in ("train", "val", "test"))
            assert not (train & val) | (train & test) | (val & test)
            everything[client].add(frozenset(train | val | test))
            seen[client] += sorted(test)
            assert len(test) == len(task_of(inputs, client).evaluation["test"])
    for client, (rows,) in everything.items():
        assert sorted(seen[client]) == sorted(rows)
    assert sum(map(len, seen.values())) == len(inputs.dataset.train) == len(pd.read_csv(patients))


def test_of_data_with_a_test_set_all_examples_are_folded_and_it_is_said(configured):
    federation = Federation(configured(folds=5, fold=5, partition="iid"))
    lines = [note.text for note in federation.learnt]
    assert "fold 5 of 5 is tested on" in lines
    assert "those of the test set that is given are divided into folds, too" in lines
    train, _, test = federation.inputs.sizes
    assert (train + test, len(federation.inputs.partitions.test.rows)) == (1797, test)
    assert abs(test - 1797 / 5) < 11  # of two clients' ten classes each part is even up to one
    assert federation.warnings == []


@pytest.mark.parametrize("keys", [{"folds": 3, "fold": 1}, {"holdout_clients": 1}])
def test_inputs_are_standardised_by_those_that_are_not_tested_on(configured, patients, keys):
    """Nor by a client that does not train, whose rows all were part of the mean."""
    keys |= {"dataset": patients, "label_column": "outcome", "columns": "age", "model": "mlp-bn"}
    inputs = inputs_of(configured(**keys, partition="iid", num_clients=3, normalize=True))
    (x,), shares = inputs.dataset.train.columns["x"].T, inputs.partitions
    (left_out,) = inputs.held_out_clients or [None]
    tested = shares.test_rows if left_out is None else shares.train[left_out]
    task = task_of(inputs, 0 if left_out != 0 else 1)
    (batch, _) = next(iter(task.train.load([np.arange(3)])))
    ages = np.delete(x, tested)
    np.testing.assert_allclose(batch[:, 0], (x[task.train.rows[:3]] - ages.mean()) / ages.std(), rtol=1e-5)


# ---- the sweep --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_methods_are_compared_out_of_fold_with_intervals_over_groups(swept, tmp_path, capsys):
    """Against scikit-learn's and DeLong's of all out-of-fold cases with their groups."""
    delong = pytest.importorskip("fedbn_flower.study.statistics.intervals").delong
    delong_test = pytest.importorskip("fedbn_flower.study.statistics.paired").delong_test
    words = "--folds 3 --group-column patient --client shared --strategy fedavg,fedyogi --metrics auroc"
    assert swept(f"{words} --thresholds 10") == 0
    of_runs, rows = csv_rows("g/grid.csv"), csv_rows("g/folds.csv")
    assert [(row["fold"], row["status"]) for row in of_runs] == 2 * [(str(i), "ok") for i in (1, 2, 3)]
    assert [*rows[0]][:8] == [
        "strategy", "client", "objective", "seed", "of", "examples", "loss", "accuracy",
    ]  # fmt: skip
    pooled = {row["strategy"]: row for row in rows if row["of"] == "pooled"}
    cases = {}
    for strategy, row in pooled.items():
        files = [
            (run["fold"], tmp_path / "g" / run["folder"]) for run in of_runs if run["strategy"] == strategy
        ]
        every = pd.concat([pd.read_parquet(f / "predictions.parquet").assign(of=int(i)) for i, f in files])
        cases[strategy] = every
        assert (every["fold"] == every["of"]).all()
        assert len(every) == every.id.nunique() == len(pd.read_csv("patients.csv")) == int(row["examples"])
        assert (every.groupby("group")["fold"].nunique() == 1).all()
        clients = [row for row in rows if row["strategy"] == strategy and row["of"] != "pooled"]
        assert [row["of"] for row in clients] == ["client 0", "client 1", "client 2"]
        assert sum(int(row["examples"]) for row in clients) == len(every)
        assert float(row["accuracy"]) == pytest.approx(accuracy_score(every["target"], every["score"] > 0.5))
        assert float(row["auroc"]) == pytest.approx(roc_auc_score(every["target"], every["score"]), abs=1e-9)
        assert int(row["events"]) == every.target.sum()
        expected = delong(every.target == 1, every.score, (every.site + "/" + every.group).factorize()[0])
        found = [float(row[name]) for name in ("auroc", "auroc low", "auroc high")]
        assert found == pytest.approx([expected.value, expected.low, expected.high])
        alone = delong(every.target == 1, every.score)
        assert (alone.low, alone.high) != pytest.approx((expected.low, expected.high), rel=1e-3)
        at_home = next(r for r in rows if r["strategy"] == strategy and r["of"] == "client 1")
        assert int(at_home["events"]) == every[every.site == "1"].target.sum()
    first, second = (frame.sort_values("id") for frame in cases.values())
    groups = (first.site + "/" + first.group).factorize()[0]
    told = delong_test(first.target, first.score, second.score, groups).p_value <= 0.05
    marks = [row["cannot be told from the best"] for row in pooled.values()]
    assert sorted(marks) == (["no", "yes"] if told else ["yes", "yes"])
    sentence = (
        f"(DeLong's test on the same {len(first)} out-of-fold cases, Bonferroni for all pairs, 5 %). The "
        "95 % intervals of differences hold for all pairs together. One division"
    )
    text = (tmp_path / "g" / "grid.md").read_text()
    assert sentence in text
    assert sentence in " ".join(capsys.readouterr().out.split())
    shown = page(tmp_path / "g")
    assert "Out of fold" in shown.text["h2"]
    for row in pooled.values():
        value, low, high = (float(row[f"auroc{end}"]) for end in ("", " low", " high"))
        mark = " *" if row["cannot be told from the best"] == "yes" else ""
        cell = f"{value:.4g} ({low:.4g} to {high:.4g}){mark}"
        line = [row[k] for k in ("strategy", "client", "objective", "seed", "of", "examples", "events")]
        assert f"| {' | '.join([*line, cell])} |" in text
        assert [*line, cell] in shown.rows
        assert " & ".join([*line, cell]) in "".join(shown.text["pre"])
    assert [t for t in shown.text["p"] if sentence in t]
    assert "Folds are not compared with each other" in text


def test_of_losses_the_lowest_is_the_best_out_of_fold(cache_dir, tmp_path, monkeypatch):
    pytest.importorskip("fedbn_flower.study")
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=80)
    pd.DataFrame({"x": x, "y": 2 * x + 1}).to_csv("line.csv", index=False)
    words = "--dataset line.csv --label-column y --predict numbers --partition iid --num-clients 2 --folds 2"
    rates = "--client shared --model linear --strategy fedavg --rounds 1 --sweep client-lr=0.05,0.0001"
    assert cli.main(f"{words} {rates} --backend inline --cache-dir {cache_dir} --run-dir g".split()) == 0
    pooled = [row for row in csv_rows("g/folds.csv") if row["of"] == "pooled"]
    assert [row["cannot be told from the best"] for row in pooled] == ["yes", "no"]
    assert [row[-1].endswith(" *") for row in page(tmp_path / "g").rows if "pooled" in row] == [True, False]


def test_over_five_seeds_of_folds_the_pooled_values_are_compared():
    Folds = pytest.importorskip("fedbn_flower.study.comparisons.folds").Folds
    told_out_of_fold = pytest.importorskip("fedbn_flower.study.comparisons.folds").told_out_of_fold
    rows = {"a": [0.9, 0.91, 0.89, 0.92, 0.88], "b": [0.5, 0.51, 0.49, 0.52, 0.48]}
    methods = {name: [Folds(i, v, []) for i, v in enumerate(values)] for name, values in rows.items()}
    told = told_out_of_fold(methods, "accuracy", True)
    assert (told.of("a"), told.of("b")) == ("yes", "no")
    assert told.sentence == (
        "Marked *: a, which is best; b (-40.0 points, 95 % -40.0 to -40.0) is worse (paired t-tests over 5 "
        "seeds, Bonferroni for all pairs, 5 %). The 95 % intervals of differences hold for all pairs "
        "together."
    )
    few = told_out_of_fold({name: of[:2] for name, of in methods.items()}, "accuracy", True)
    words = (
        "Which is best out of fold cannot be known from only 2 seeds; at least 5 are needed. The best mean"
    )
    assert few.sentence.startswith(words)
    assert told_out_of_fold({"a": methods["a"]}, "accuracy", True).sentence == ""


@pytest.mark.slow
def test_started_again_missing_folds_are_run_and_pooled(swept, tmp_path):
    assert swept("--folds 2 --partition iid") == 0
    first = csv_rows("g/folds.csv")
    (tmp_path / "g" / "folds.csv").unlink()
    (tmp_path / "g" / "fedyogi-fedbn-plain-fold=2-seed0" / ".done").unlink()
    assert cli.main(["--resume", "g"]) == 0
    assert csv_rows("g/folds.csv") == first


def test_each_site_is_left_out_once_and_evaluated_with_and_without_its_statistics(swept, patients, tmp_path):
    Cases = pytest.importorskip("fedbn_flower.study.statistics.cases").Cases
    METRICS = pytest.importorskip("fedbn_flower.study.statistics.case_metrics").METRICS
    intervals_of_cases = pytest.importorskip("fedbn_flower.study.statistics.intervals").intervals_of_cases
    patients = pd.read_csv(patients)
    patients["source"] = [f"patients.csv:{row + 2}" for row in patients.index]
    words = "--leave-one-site-out true --client silobn --partition natural:site --group-column patient"
    assert swept(f"{words} --metrics auroc") == 0
    rows = csv_rows("g/grid.csv")
    assert [row["left-out"] for row in rows] == ["0", "1", "2"]  # the sites' names are 0, 1 and 2
    assert {c for c in rows[0] if ": " in c} == {
        "auroc: left out", "auroc: left out, statistics as received",
    }  # fmt: skip
    values = [float(row["auroc: left out"]) for row in rows]
    half = 4.302653 * np.std(values, ddof=1) / 3**0.5  # Student's 97.5 % with 2 degrees of freedom
    ends = [f"{np.mean(values) + sign * half:.4g}" for sign in (-1, 1)]
    text, shown = (tmp_path / "g" / "grid.md").read_text(), page(tmp_path / "g")
    assert f"| 3 | {np.mean(values):.4g} | {' to '.join(ends)} |" in text
    for number, row in enumerate(rows):
        folder = tmp_path / "g" / row["folder"]
        summary = json.loads((folder / "summary.json").read_text())
        assert set(summary["clients"]) == {"0", "1", "2"} - {str(number)}
        for key, column in (
            ("new-clients", "auroc: left out"),
            ("new-clients-as-received", "auroc: left out, statistics as received"),
        ):
            (client,) = summary[key]["clients"].values()
            assert list(summary[key]["clients"]) == [str(number)]
            assert float(row[column]) == pytest.approx(client["auroc"], rel=1e-15)  # of 16 digits
        phases = {(r["phase"], r["partition"]) for r in csv_rows(folder / "clients.csv")}
        assert {(phase, p) for phase, p in phases if phase.startswith("new")} == {
            ("new", str(number)), ("new-as-received", str(number)),
        }  # fmt: skip
        assert {p for phase, p in phases if phase == "train"} == {"0", "1", "2"} - {str(number)}
        cases = pd.read_parquet(folder / "predictions.parquet")
        of_site = cases[cases.new]
        client = summary["new-clients"]["clients"][str(number)]
        assert sorted(of_site.source) == sorted(patients.source[patients.site == number])  # all of them
        assert client["auroc"] == pytest.approx(roc_auc_score(of_site.target, of_site.score), abs=1e-12)
        metric = {"auroc": METRICS["auroc"]}
        expected = intervals_of_cases(Cases.of(of_site), metric, 0)["clients"][str(number)]["auroc"]
        found = summary["new-clients"]["intervals"]["clients"][str(number)]["auroc"]
        assert found == pytest.approx([expected.low, expected.high])
        assert found != summary["intervals"]["pooled"]["auroc"]
        line = [str(number), f"{client['auroc']:.3f} ({expected.low:.3f} to {expected.high:.3f})"]
        assert f"| {' | '.join(line)} |" in text
        assert line in shown.rows
        assert [str(number), str(len(of_site))] in [row[:2] for row in shown.rows]


def test_methods_are_compared_on_the_cases_of_the_site_left_out(swept, patients, tmp_path):
    delong_test = pytest.importorskip("fedbn_flower.study.statistics.paired").delong_test
    difference_of = pytest.importorskip("fedbn_flower.study.comparisons.best_cells").difference_of
    words = "--leave-one-site-out true --left-out 1 --strategy fedavg,fedyogi --partition natural:site"
    assert swept(f"{words} --metrics auroc") == 0
    frame = pd.read_csv(patients)
    events = ((frame.site == 1) & (frame.outcome == 1)).sum()
    text = (tmp_path / "g" / "grid.md").read_text()
    assert f"cannot be known from only {events} held-out cases outside the most frequent class" in text
    runs = [Run.read(path.parent) for path in sorted((tmp_path / "g").glob("*/summary.json"))]
    tables = [pd.read_parquet(run.folder / "predictions.parquet") for run in runs]
    one, other = (table[table.new].sort_values("source") for table in tables)
    assert (one.source.to_numpy() == other.source.to_numpy()).all()
    expected = delong_test(one.target, other.score.to_numpy(), one.score.to_numpy())
    first, second = (run.summary.left_out.mean["auroc"] for run in runs)
    found = difference_of(*runs, "auroc", (first, second))
    assert found.difference == pytest.approx(second - first)
    assert found == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.parametrize("client", ["shared", "silobn", "fedbn"])
def test_statistics_are_the_sites_own_or_as_received(run, patients, tmp_path, client):
    """By scikit-learn's accuracy of a model whose statistics are set by hand: those of the training rows that
    reach the layer, or those of the server, which are the initial ones where they stay at home."""
    keys = {"dataset": patients, "label_column": "outcome", "columns": "age,sex", "num_clients": 3}
    keys |= {"model": "mlp-bn", "partition": "natural:site", "client": client, "rounds": 3, "seed": 1}
    result = run(**keys, leave_one_site_out=True, left_out=1, run_dir="r", client_lr=0.5)
    stored = json.loads((tmp_path / "r" / "config.json").read_text())
    config = run_config({key: value for key, value in stored.items() if key in RUN_KEYS})
    task = task_of(inputs_of(config), 1)
    state = {name: torch.from_numpy(a) for name, a in load_file("r/model.safetensors").items()}
    model = task.model
    whole = {name: torch.from_numpy(a.copy()) for name, a in task.initial.items()} | state
    ((x, _),) = task.train.load([np.arange(len(task.train))])
    test = task.evaluation["test"]
    assert len(test) == (pd.read_csv(patients)["site"] == 1).sum()  # none of them is trained on
    ((x_test, y),) = test.load([np.arange(len(test))])
    norm = next(name for name, module in model.named_modules() if "BatchNorm" in type(module).__name__)
    for key, own in (("new-clients", True), ("new-clients-as-received", False)):
        model.load_state_dict(whole)
        if own:
            module, reached = model.get_submodule(norm), []
            hook = module.register_forward_pre_hook(lambda _, given, seen=reached: seen.append(given[0]))
            with torch.no_grad():
                model.eval()(x)
            hook.remove()
            module.running_mean.copy_(reached[0].mean(0))
            module.running_var.copy_(reached[0].var(0))
        with torch.no_grad():
            said = model.eval()(x_test).argmax(1)
        expected = accuracy_score(y, said)
        assert result.summary[key]["clients"]["1"]["accuracy"] == pytest.approx(expected), key


# ---- at sites ----------------------------------------------------------------------------------------


@pytest.fixture
def sites(patients, tmp_path):
    """The tables of three sites, as nodes have them, by partition."""
    frame = pd.read_csv(patients)
    nodes = []
    for site, rows in frame.groupby("site"):
        path = tmp_path / f"site-{site}.csv"
        rows.to_csv(path, index=False)
        nodes.append({"data-path": str(path), "partition-id": site, "cache-dir": str(tmp_path / "cache")})
    return nodes


AT_SITES = {
    "dataset": "shape:3:2", "columns": "age,sex=f|m", "label_column": "outcome=0|1", "model": "mlp-bn",
    "num_clients": 3, "partition": "iid", "group_column": "patient", "rounds": 1, "client": "silobn",
}  # fmt: skip


def messages_of(config, nodes):
    """What a run over the sites sends, and what it gets back by message type."""
    federation, grid = Federation(config), Sites(config, nodes)
    asked, work = [], grid.work
    grid.work = lambda messages, timeout: asked.extend(messages) or work(messages, timeout)
    results = []
    federation.run(grid, [SimpleNamespace(on_round=results.append, on_answer=lambda *_: None)])
    return federation, asked, results[-1]


def test_a_site_is_left_out_over_messages(configured, sites, tmp_path):
    sites[2] |= {"predictions": True, "state-dir": str(tmp_path / "state")}
    config = configured(**AT_SITES, leave_one_site_out=True, left_out=2)
    federation, asked, result = messages_of(config, sites)
    assert {m.metadata.message_type for m in asked[:3]} == {"query.names"}
    kinds = [(m.metadata.message_type, m.content["config"].get("own-statistics")) for m in asked[3:]]
    assert kinds == [("train", None)] * 2 + [("evaluate", None)] * 2 + [
        ("evaluate", False),
        ("evaluate", True),
    ]
    assert (set(result.train.metrics), set(result.new.metrics)) == ({0, 1}, {2})
    assert set(result.new_as_received.metrics) == {2}
    assert result.new.metrics[2]["loss"] != result.new_as_received.metrics[2]["loss"]
    assert federation.unused == ["cache-dir"]
    assert not result.new.cases
    (file,) = (tmp_path / "state/predictions").rglob("*.parquet")
    kept, rows = pd.read_parquet(file), pd.read_csv(sites[2]["data-path"])
    assert kept.new.all()
    assert sorted(kept.source) == sorted(f"site-2.csv:{row + 2}" for row in rows.index)
    assert accuracy_score(kept.target, kept.predicted) == pytest.approx(result.new.metrics[2]["accuracy"])


def test_a_site_folds_its_own_rows_and_standardises_by_the_others(configured, sites):
    """The scale that the server makes of three sites is that of the rows they do not test on."""
    tested, scales = [], []
    for fold in (1, 2, 3):
        config = configured(**AT_SITES | {"normalize": True}, folds=3, fold=fold)
        federation, _, result = messages_of(config, sites)
        values, count = [], 0
        for node in sites:
            inputs = inputs_at(config, node)
            rows = rows_of(inputs, node["partition-id"])
            ages = inputs.dataset.train.columns["x"][:, 0].astype(np.float64)
            values.append(ages[np.concatenate([rows["train"], rows["val"]])])
            units = inputs.dataset.train.units
            assert not set(units[rows["train"]]) & set(units[rows["test"]])
            count += len(rows["test"])
            assert len(ages) == len(rows["train"]) + len(rows["test"])
        scales.append(federation.totals.normalization["feature-mean"][0])
        assert scales[-1] == pytest.approx(np.concatenate(values).mean(), rel=1e-6)
        tested.append(sum(int(m["eval-examples"]) for m in result.evaluate.metrics.values()))
        assert tested[-1] == count
    assert sum(tested) == 180
    assert len(set(scales)) == 3


# ---- what cannot be ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("folds 1", r"folds: 1 is not allowed; expected 0, or at least 2$"),
        ("folds 3 --fold 4", r"fold: 4 is not allowed; expected from 1 to 3 with folds 3; run_sim.py"),
        ("fold 1", r"fold: 1 is not allowed; expected 0 without folds$"),
        ("folds 3 --eval-data global", r"eval-data: 'global' is not allowed; expected 'local' with folds"),
        ("sweep folds=2,3", r"folds: .* is not allowed; expected one value for all runs$"),
        ("left-out 0", r"left-out: 0 is not allowed; expected -1 without leave-one-site-out$"),
        ("LEAVE --eval-data global", r"eval-data: 'global' .* 'local' with leave-one-site-out: clients"),
        ("LEAVE --folds 2", r"folds: 2 is not allowed; expected 0 with leave-one-site-out, whose runs"),
        ("LEAVE --holdout-clients 2 --num-clients 4", r"holdout-clients: 2 .* which names one$"),
        ("folds 3 --fold 1 --dp example --dp-noise 1", r"folds: 3 .* 0 with dp 'example': which fold"),
        ("LEAVE --sweep num-clients=2,3", r"num-clients: '2,3' .* one value with leave-one-site-out$"),
        ("folds 2 --search client-lr=0.1..1", r"search: .* needs a single run, but this is a sweep of fold$"),
    ],
)
def test_runs_that_cannot_be(words, line):
    words = words.replace("LEAVE", "leave-one-site-out true")
    with pytest.raises(UserError, match=f"^{line}") as error:
        parse_command_line(f"--{words}".split())
    assert "\n" not in str(error.value)


def test_in_python_a_run_is_one_fold(run):
    with pytest.raises(UserError, match=r"^fold: missing; expected from 1 to 3 with folds 3"):
        run(folds=3)
    with pytest.raises(UserError, match=r"^num-clients: 1 is not allowed; expected at least 2"):
        run(leave_one_site_out=True, left_out=0, num_clients=1)
    with pytest.raises(UserError, match=r"^left-out: 0 is not allowed; expected -1 without leave-one-site"):
        run(left_out=0, num_clients=1)
    with pytest.raises(UserError, match=r"^left-out: missing; expected from 0 to 1 with"):
        run(leave_one_site_out=True)
    with pytest.raises(UserError, match=r"^folds: 900 is not allowed; expected at most 89\d, the number"):
        run(folds=900, fold=1, partition="iid")
    with pytest.raises(UserError, match=r"^val-fraction: 0.997 is not allowed; expected less: \d of 5"):
        run(folds=3, fold=1, partition="iid", val_fraction=0.997, num_clients=5)


def test_the_runs_of_both_are_a_sweep_and_cover_all():
    assert [c.fold for c in Experiment.of({"folds": 4}).configurations()] == [1, 2, 3, 4]
    experiment = Experiment.of(
        {"leave-one-site-out": True, "num-clients": 5, "seed": [0, 1], "partition": "iid"}
    )
    found = [(config.left_out, config.seed) for config in experiment.configurations()]
    assert found == [(client, seed) for client in range(5) for seed in (0, 1)]
    assert experiment.is_sweep
    assert not Experiment.of({"folds": 4, "fold": 2}).is_sweep
    assert {inputs_of(c).held_out_clients for c in experiment.configurations()} == {
        frozenset({client}) for client in range(5)
    }
