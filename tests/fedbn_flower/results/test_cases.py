"""predictions.parquet: what the kept model predicts of each held-out case, against passes by hand."""

import json
import stat
from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from sklearn.datasets import load_digits
from sklearn.metrics import accuracy_score, roc_auc_score

from fedbn_flower import Result, UserError
from fedbn_flower.job.cases import keeps_cases
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.records.cases import (
    LARGEST_KEPT,
    CaseColumns,
    binary_cases,
    cases_used,
    predictions_file,
    written_predictions,
)
from fedbn_flower.results.held_out import held_out_by_site
from fedbn_flower.results.run_reader import Run
from fedbn_flower.runtime.grid import InlineGrid, partition_of
from fedbn_flower.server.exchange import Exchange
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.adapter import app
from strategies import PhaseReport
from tests.quick import diagonal_quick

from .html_page import page
from .test_supernodes import SuperNodes, run_app
from .written_cases import drawn, write_cases

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 4)).astype(np.float32)
Y = (RNG.random(400) < 1 / (1 + np.exp(1 - 2 * X[:, 0]))).astype(np.int64)
BINARY = {"data": (X[:200], Y[:200], X[200:], Y[200:]), "num_clients": 2, "partition": "iid"}
LOCALLY = {"eval_data": "local"}
DIGITS = load_digits()
IMAGES = DIGITS.images[:, None].astype(np.float32) / 16
TEN = {
    "data": (IMAGES[:900], DIGITS.target[:900], IMAGES[900:1300], DIGITS.target[900:1300]),
    "num_clients": 3,
    "partition": "dirichlet:1",
}


def of_sites(folder, **columns):
    """The keys of a run on the tables of two sites, with further columns."""
    frame = pd.DataFrame(X, columns=list("abcd")).assign(ill=np.where(Y, "yes", "no"), **columns)
    folder.mkdir()
    for site, rows in (("lyon", slice(0, 250)), ("turin", slice(250, 400))):
        frame[rows].to_csv(folder / f"{site}.csv", index=False)
    keys = {"dataset": str(folder), "label_column": "ill=no|yes", "partition": "natural:file"}
    return keys | {"num_clients": 2}


def by_hand(result, site, rows, images):
    with torch.no_grad():
        return result.model(int(site))(torch.tensor(images[rows])).double().softmax(1).numpy()


@pytest.mark.parametrize(
    ("client", "patience"),
    diagonal_quick(
        ["shared", "silobn", "fedbn"],
        [{}, {"val_fraction": 0.2, "patience": 1, "rounds": 6, "server_lr": 3.0}],
    ),
)
def test_scores_are_those_of_the_kept_model_with_each_clients_memory(run, client, patience):
    result = run(**TEN, **LOCALLY, client=client, strategy="fedavg", **patience, checkpoint_every=1)
    table = result.predictions
    assert [*table.columns] == [
        *("site", "new", "split", "id", "source", "group", "target", "predicted"),
        *(f"score-{i}" for i in range(10)), "fold", "seed",
    ]  # fmt: skip
    assert sorted(table.id) == list(range(400))
    assert table.group.isna().all()
    assert table.fold.isna().all()
    assert set(table.seed) == {0}
    scores = table.filter(like="score-").to_numpy()
    for site, of_site in table.groupby("site"):
        rows = of_site.id.to_numpy()
        assert (of_site.target == DIGITS.target[900:1300][rows]).all()
        np.testing.assert_allclose(
            scores[of_site.index], by_hand(result, site, rows, IMAGES[900:1300]), rtol=0, atol=1e-6
        )
        right = accuracy_score(of_site.target, scores[of_site.index].argmax(1))
        assert right == pytest.approx(result.summary["clients"][site]["accuracy"], abs=1e-12)
    counted = held_out_by_site(Run.read(result.folder)).values()
    assert [sum(of[str(i)] for of in counted) for i in range(10)] == result.summary["per-class"]["examples"]


def test_of_shared_examples_each_client_has_a_row(run):
    table = run(**BINARY, eval_data="global", client="fedbn").predictions
    assert [*table.columns] == [
        *("site", "new", "split", "id", "source", "group", "target", "predicted", "score", "fold", "seed")
    ]
    assert table.site.tolist() == ["0"] * 200 + ["1"] * 200
    assert table.id.tolist() == 2 * list(range(200))
    halves = table.score.to_numpy().reshape(2, 200)
    assert not np.array_equal(*halves)  # models of their own


@pytest.mark.slow
def test_a_locally_trained_model_is_evaluated_before_it_is_gone_and_who_is_not_asked_has_no_rows(run):
    result = run(**BINARY | {"num_clients": 4}, **LOCALLY, eval_model="local", fraction_train=0.5)
    assert set(result.predictions.site) == result.summary["clients"].keys()
    assert result.predictions.site.nunique() == 2
    for site, of_site in result.predictions.groupby("site"):
        right = accuracy_score(of_site.target, of_site.score > 0.5)
        assert right == pytest.approx(result.summary["clients"][site]["accuracy"], abs=1e-12)


@pytest.mark.parametrize(
    "keys", [LOCALLY | {"eval_model": "local"}, {"eval_data": "global", "client": "shared"}]
)
def test_the_rest_of_a_run_stays_as_it_is(run, keys, tmp_path):
    """Bits, numbers and counted bytes are those without the file."""
    folders = [run(**BINARY, **keys, predictions=on, run_dir=tmp_path / on).folder for on in ("auto", "off")]
    models = [(folder / "model.safetensors").read_bytes() for folder in folders]
    assert models[0] == models[1]
    tables = [
        pd.read_csv(folder / "metrics.csv").filter(regex="^(?!.*seconds)").to_csv() for folder in folders
    ]
    assert tables[0] == tables[1]
    assert [(folder / "predictions.parquet").exists() for folder in folders] == [True, False]
    with pytest.raises(UserError, match=r"^predictions: '.*/off' has no predictions.parquet$"):
        Result(folders[1]).predictions


@pytest.mark.slow
def test_the_file_is_the_same_on_ray(run, tmp_path, on_the_pool):
    """Of models that are gone after their training; of others: `test_measures`."""
    files = [
        run(**TEN, **LOCALLY, eval_model="local", **how, run_dir=tmp_path / how["backend"]).folder
        for how in ({"backend": "inline"}, {"backend": "ray", "workers": 2})
    ]
    one, other = ((folder / "predictions.parquet").read_bytes() for folder in files)
    assert one == other


@pytest.mark.slow
def test_labels_and_numbers_have_columns_of_their_own(run):
    targets = np.stack([Y, 1 - Y, Y], 1).astype(np.float32)
    data = (X[:200], targets[:200], X[200:], targets[200:])
    table = run(data=data, num_clients=2, partition="iid", **LOCALLY, problem="multi-label").predictions
    assert [*table.columns[6:12]] == [f"{kind}-{i}" for kind in ("target", "score") for i in range(3)]
    assert (table[[f"target-{i}" for i in range(3)]].to_numpy() == targets[200:][table.id]).all()
    numbers = (X[:200], X[:200, :1], X[200:], X[200:, :1])
    result = run(data=numbers, num_clients=2, partition="iid", **LOCALLY, client="shared")
    table = result.predictions
    np.testing.assert_array_equal(table.target, X[200:, 0][table.id].astype(float))
    mae = (table.score - table.target).abs().mean()
    assert mae == pytest.approx(result.summary["mean"]["mae"], rel=1e-6)


def test_auto_keeps_no_more_than_a_million_scores(configured, monkeypatch):
    """Of 360 digits of ten classes, each once or for each of two clients."""
    local, shared = (inputs_of(configured(partition="iid", eval_data=of)) for of in ("local", "global"))
    for most, kept in ((3599, [False, False]), (3600, [True, False]), (7200, [True, True])):
        monkeypatch.setattr("fedbn_flower.job.cases.MOST_SCORES", most)
        assert [keeps_cases(local), keeps_cases(shared)] == kept
    monkeypatch.setattr("fedbn_flower.job.cases.MOST_SCORES", 0)
    assert keeps_cases(inputs_of(configured(partition="iid", predictions="on")))


@pytest.mark.slow
def test_rows_of_clients_that_never_train_say_so_and_give_their_metrics(run):
    """By scikit-learn, although thresholds are few; those of the others are not mixed with them."""
    delong = pytest.importorskip("fedbn_flower.study.statistics.intervals").delong
    keys = {"num_clients": 4, "holdout_clients": 2, "metrics": "auroc,accuracy", "thresholds": 10}
    result = run(**BINARY | keys, **LOCALLY, client="fedbn")
    table, summary = result.predictions, result.summary
    new, of_new = table[table.new], summary["new-clients"]
    assert set(table[~table.new].site) == summary["clients"].keys() == summary["intervals"]["clients"].keys()
    assert set(new.site) == of_new["clients"].keys() == of_new["intervals"]["clients"].keys()
    assert (new.target == Y[200:][new.id]).all()
    parts = [(of_new["pooled"], of_new["intervals"]["pooled"], new)]
    parts += [
        (of_new["clients"][site], of_new["intervals"]["clients"][site], part)
        for site, part in new.groupby("site")
    ]
    for values, ends, part in parts:
        assert values["accuracy"] == accuracy_score(part.target, part.predicted)
        assert values["auroc"] == pytest.approx(roc_auc_score(part.target, part.score), abs=1e-12)
        expected = delong(part.target == 1, part.score)
        assert ends["auroc"] == pytest.approx([expected.low, expected.high])
    rows = {row[0]: row for row in page(result.folder).rows}
    for site, part in new.groupby("site"):
        low, high = of_new["intervals"]["clients"][site]["auroc"]
        counts = [str(len(part)), str(part.target.sum())]
        assert rows[f"client {site}"][2:4] == counts
        assert f"({low:.3f} to {high:.3f})" in " ".join(rows[f"client {site}"])


def test_cases_of_an_answer_that_was_refused_are_left_out():
    sent = {node: ArrayRecord({"rows": Array(np.arange(node))}) for node in (3, 2, 1)}
    nodes = SimpleNamespace(partition=lambda node: node - 1)
    used = cases_used(sent, nodes, PhaseReport(metrics={0: MetricRecord(), 2: MetricRecord()}))
    assert {partition: found["rows"].tolist() for partition, found in used.items()} == {0: [0], 2: [0, 1, 2]}


PRIVATE = {"dp": "client", "dp_noise": 1.0, "dp_delta": 0.1, "dp_sampling": "all", "client": "fedbn"}


def test_what_cannot_be_kept_is_one_line(run, configured):
    line = "^predictions: 'on' .* 'auto' or 'off' with dp 'client': scores tell of single examples$"
    with pytest.raises(UserError, match=line):
        run(**BINARY, **PRIVATE, strategy="fedavg", predictions="on")
    folder = run(**BINARY, **PRIVATE, strategy="fedavg").folder
    assert not (folder / "predictions.parquet").exists()
    text = {"dataset": "shape:80:97:characters", "model": "char-lstm-small", "client": "shared"}
    with pytest.raises(UserError, match="^predictions: 'on' is not allowed; expected 'auto' or 'off': data"):
        keeps_cases(inputs_of(configured(**text, predictions="on")))


# ---- sites -------------------------------------------------------------------------------------------------


class Sites(SuperNodes):
    """SuperNodes whose owners say something of predictions; which records they answer."""

    def __init__(self, config, state_dir, **of_node):
        super().__init__(config, state_dir)
        self.of_node, self.records = of_node, set()

    def work(self, messages, timeout):
        for message in messages:
            node_config = {"partition-id": partition_of(message), "num-partitions": 2} | self.of_node
            context = Context(1, message.metadata.dst_node_id, node_config, RecordDict(), self.run_config)
            if message.metadata.message_type.startswith(MessageType.QUERY):
                yield from super().work([message], timeout)
                continue
            if self.state_dir:
                context.node_config["state-dir"] = str(self.state_dir)
            answer = app(message, context)
            self.records |= set(answer.content) if answer.has_content() else set()  # as it left the site
            yield answer


@pytest.fixture
def site_run(configured, tmp_path):
    def go(state=True, grid=Sites, run="run", keys=None, **of_node):
        config = configured(rounds=2, client="fedbn", run_dir=str(tmp_path / run), **(keys or {}))
        sites = grid(config, tmp_path / "state" if state else None, **of_node)
        run_app(config, sites)
        return tmp_path / run, sites

    return go


@pytest.mark.parametrize("keys", [{}, {"eval_model": "local"}])
def test_at_a_site_they_stay_at_home_if_its_owner_allows_them(site_run, tmp_path, keys):
    folder, sites = site_run(predictions=True, keys=keys)
    assert "held-out-cases" not in sites.records
    assert not (folder / "predictions.parquet").exists()
    found = sorted((tmp_path / "state/predictions").rglob("*.parquet"))
    assert [path.name for path in found] == ["client-0.parquet", "client-1.parquet"]
    assert len({path.parent.name for path in found}) == 1  # the run's
    for site, path in enumerate(found):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        table = pd.read_parquet(path)
        assert set(table.site) == {str(site)}
        scores = table.filter(like="score-").to_numpy()
        metrics = json.loads((folder / "summary.json").read_text())["clients"][str(site)]
        assert accuracy_score(table.target, scores.argmax(1)) == pytest.approx(metrics["accuracy"])


@pytest.mark.slow
def test_a_sites_own_file_has_its_subgroups_and_the_server_has_none(site_run, tmp_path, caplog):
    table = pd.DataFrame(X, columns=list("abcd")).assign(ill=Y, sex=np.where(X[:, 1] > 0, "f", "m"))
    table.to_csv(tmp_path / "table.csv", index=False)
    keys = {"label_column": "ill", "partition": "iid", "columns": "a,b", "subgroups": "sex"}
    folder, sites = site_run(predictions=True, keys=keys | {"dataset": str(tmp_path / "table.csv")})
    assert "held-out-cases" not in sites.records
    assert "subgroups" not in json.loads((folder / "summary.json").read_text())
    assert not (folder / "subgroups.csv").exists()
    files = sorted((tmp_path / "state/predictions").rglob("*.parquet"))
    assert len(files) == 2
    for path in files:
        assert set(pd.read_parquet(path)["subgroup-sex"]) == {"f", "m"}
    assert "subgroups sex (cases stay at the nodes" in caplog.text


@pytest.mark.parametrize(("of_node", "state"), [({}, False), ({"predictions": False}, True)])
def test_no_site_keeps_or_sends_them_unasked(site_run, tmp_path, state, of_node):
    _, sites = site_run(state=state, **of_node)
    assert "metrics" in sites.records
    assert "held-out-cases" not in sites.records
    assert not list(tmp_path.rglob("predictions*"))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("yes", "'yes' is not allowed; expected true or false in the node config"),
        (True, "True is not allowed; expected false in a node config without a"),
    ],
)
def test_an_owners_mistake_is_one_line(configured, tmp_path, value, said):
    config = configured(rounds=1, client="fedbn")
    with pytest.raises(Exception, match=f"predictions: {said}"):
        Federation(config).run(Sites(config, tmp_path if value == "yes" else None, predictions=value), [])


def test_what_a_site_sends_unasked_is_dropped_unread():
    reply = Message(RecordDict({"held-out-cases": ConfigRecord({"a": 1})}), 1, "train")
    exchange = Exchange(InlineGrid(1, {}), 1)
    exchange.received(reply, None)
    assert not exchange.cases
    assert not reply.content


# ---- the table ---------------------------------------------------------------------------------------------


def test_groups_are_those_of_the_rows_and_who_is_in_no_known_subgroup_has_an_empty_cell():
    cases = {"rows": np.array([2, 0]), "scores": np.eye(2), "targets": np.array([1, 0])}
    sex = {"sex": np.array(["f", "m", ""])}
    columns = CaseColumns(["no", "yes"], True, 7, np.array([5, 6, 9]), subgroups=sex)
    table = pd.read_parquet(BytesIO(predictions_file(({"a": cases}, columns))))
    assert table.group.tolist() == ["9", "5"]
    assert table.score.tolist() == [0.0, 1.0]
    assert table.seed.tolist() == [7, 7]
    assert table["subgroup-sex"].isna().tolist() == [True, False]
    assert table["subgroup-sex"][1] == "f"


@pytest.mark.parametrize(("largest", "reads"), [(LARGEST_KEPT, 2), (0, 5)])
def test_a_file_is_read_once_however_often_tables_ask_and_again_when_it_has_changed(
    tmp_path, monkeypatch, largest, reads
):
    """What one of those who ask does with its table changes no other's; a large file is not kept."""
    files, read_parquet = [], pd.read_parquet
    monkeypatch.setattr("fedbn_flower.records.cases.LARGEST_KEPT", largest)
    monkeypatch.setattr(pd, "read_parquet", lambda path: files.append(path) or read_parquet(path))
    folder = write_cases(tmp_path / "run", drawn({"fedavg": 1.0})["fedavg"])
    found = written_predictions(folder)
    found["score"] = 0.0
    for _ in range(3):
        table = binary_cases(folder)
        assert len(table) == len(found)
        assert table["score"].min() > 0
    other = write_cases(tmp_path / "other", drawn({"fedavg": 1.0}, cases=20)["fedavg"])
    (other / "predictions.parquet").replace(folder / "predictions.parquet")
    assert len(binary_cases(folder)) == 20
    assert len(files) == reads
