"""Whole runs in this process: what is sent, what is written, and what a failing client does."""

import json
from importlib.metadata import version

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from safetensors.numpy import load_file

from clients import CLIENTS, FedAvgClient
from fedbn_flower.core.errors import RunFailed, UserError
from fedbn_flower.job.initial_model import initial_model
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.runtime.server_app import main as server_main
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation

from ..records.helpers import rows_of

HEAD = {"4.weight", "4.bias"}
LOCAL = {
    "shared": set(),
    "silobn": {"2.running_mean", "2.running_var", "2.num_batches_tracked"},
    "fedbn": {"2.weight", "2.bias", "2.running_mean", "2.running_var", "2.num_batches_tracked"},
    **{name: HEAD for name in ("fedper", "fedrep", "fedper+ditto")},
}
MLP_BN = {"1.weight", "1.bias"} | HEAD | LOCAL["fedbn"]
LOCAL["lg-fedavg"] = MLP_BN - HEAD


class Listening(InlineGrid):
    """Keeps every message that passes, in either direction."""

    def __init__(self, config):
        super().__init__(config.num_clients, config.to_user_config())
        self.heard = []

    def work(self, messages, timeout):
        self.heard += messages
        for reply in super().work(messages, timeout):
            self.heard.append(reply)
            yield reply


def test_no_virtual_node_is_asked_for_its_partition(configured):
    """A simulation numbers its nodes by partition: a query to each of 100,000 would take seconds."""
    config = configured(rounds=1)
    grid = Listening(config)
    Federation(config).run(grid, [])
    assert {m.metadata.message_type for m in grid.heard} == {"train", "evaluate"}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("client", LOCAL)
@pytest.mark.parametrize("eval_model", ["aggregated", "local"])
def test_no_local_entry_is_in_any_message(configured, client, eval_model):
    config = configured(client=client, eval_model=eval_model, rounds=2)
    grid = Listening(config)
    Federation(config).run(grid, [])
    records = [(name, r) for m in grid.heard for name, r in m.content.array_records.items()]
    assert len(records) == 2 * 2 * (2 if eval_model == "local" else 3)  # model out, model back, model out
    for name, record in records:
        assert name == "arrays"
        assert set(record) == MLP_BN - LOCAL[client]
    # Statistics could also leave under another name: no metric or config holds more than a number, but for
    # the counts by class of the last round.
    for message in grid.heard:
        for record in (*message.content.metric_records.values(), *message.content.config_records.values()):
            more = {name: value for name, value in record.items() if not isinstance(value, int | float | str)}
            assert more.keys() <= {"class-hits", "class-examples"}
            assert all(len(counts) == 10 for counts in more.values())
            assert all(type(n) is int for counts in more.values() for n in counts)


@pytest.mark.slow
@pytest.mark.parametrize("pair", ["feddyn", "scaffold"])
def test_what_an_objective_remembers_is_in_no_message(configured, pair):
    """SCAFFOLD's control variates travel, in a record of their own; FedDyn's g_i never does."""
    config = configured(strategy=pair, objective=pair, client="fedbn", rounds=2)
    grid = Listening(config)
    Federation(config).run(grid, [])
    trained = [m for m in grid.heard if m.metadata.message_type == "train"]
    assert len(trained) == 8
    for message in trained:
        records = {name: set(record) for name, record in message.content.array_records.items()}
        shared = MLP_BN - LOCAL["fedbn"]
        assert records == {"arrays": shared} | ({"control": shared} if pair == "scaffold" else {})


def test_the_run_folder(finished, tmp_path):
    summary = finished(tmp_path / "run", client="shared", strategy="fedavg", rounds=3)
    folder = tmp_path / "run"
    names = {
        "config.json", "metrics.csv", "clients.csv", "summary.json", "model.safetensors", "curves.png",
        "partitions.png",
    }  # fmt: skip
    assert names <= {p.name for p in folder.iterdir()}
    assert not list(folder.rglob(".*.tmp"))
    resolved = json.loads((folder / "config.json").read_text())
    assert (resolved["server-lr"], resolved["rounds"], resolved["seed"]) == (1.0, 3, 0)
    assert resolved["versions"]["flwr"] == version("flwr")
    metrics = rows_of(folder)
    assert [row["round"] for row in metrics] == ["1", "2", "3"]
    clients = rows_of(folder, "clients.csv")
    assert [(r["round"], r["phase"], r["partition"]) for r in clients] == [
        (str(r), phase, str(p)) for r in (1, 2, 3) for phase in ("train", "evaluate") for p in (0, 1)
    ]
    # The aggregated model is one model: every client finds on the whole test set what the server finds.
    assert summary["global"] == {
        "accuracy": float(metrics[-1]["global-accuracy"]),
        "loss": float(metrics[-1]["global-loss"]),
    }
    for number, client in summary["clients"].items():
        assert {k: client[k] for k in ("accuracy", "loss")} == summary["global"]
        assert client["num-examples"] == int(clients[int(number)]["num-examples"])
    assert summary["rounds"] == 3
    assert summary["failures"] == 0
    assert set(load_file(folder / "model.safetensors")) == MLP_BN


def test_there_is_no_global_model_where_batch_norm_stays_at_home(finished, tmp_path):
    summary = finished(tmp_path / "run", client="silobn", rounds=1)
    assert summary["global"] is None
    assert set(load_file(tmp_path / "run" / "model.safetensors")) == MLP_BN - LOCAL["silobn"]


def test_a_folder_in_use_is_refused(finished, tmp_path):
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(UserError, match="run-dir: .* is not allowed; expected a new or empty folder"):
        finished(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["note.txt"]


# ---- clients that fail ------------------------------------------------------------------------------


class Fragile(FedAvgClient):
    """Partition 1 fails from its second round on, in the way that ``breaks`` says."""

    breaks = staticmethod(lambda parameters: parameters)

    def fit(self, parameters, config):
        parameters, count, metrics = super().fit(parameters, config)
        if self.task.seed[1] == 1 and config["server-round"] > 1:
            return self.breaks(parameters, count, metrics)
        return parameters, count, metrics


def explode(*_):
    raise RuntimeError("out of luck")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("breaks", "reason"),
    [
        (
            explode,
            f"RuntimeError: out of luck (test_simulation.py, line {explode.__code__.co_firstlineno + 1})",
        ),
        (lambda p, n, m: ([np.full_like(a, np.nan) if a.ndim else a for a in p], n, m), "not finite"),
        (lambda p, n, m: (p[:-1], n, m), "arrays for"),
    ],
)
def test_a_client_that_fails_is_dropped_and_counted(finished, tmp_path, monkeypatch, caplog, breaks, reason):
    monkeypatch.setitem(CLIENTS, "fragile", type("Broken", (Fragile,), {"breaks": staticmethod(breaks)}))
    summary = finished(tmp_path / "run", client="fragile", rounds=3)
    assert summary["failures"] == 2
    assert [row["failures"] for row in rows_of(tmp_path / "run")] == ["0", "1", "1"]
    said = [r.message for r in caplog.records if "partition 1 dropped" in r.message]
    assert len(said) == 1  # not in every round anew
    assert reason in said[0]
    last = [r.message for r in caplog.records if "replies were refused" in r.message]
    assert len(last) == 1
    assert last[0].startswith("2 replies were refused, of client 1: ")
    assert reason in last[0]


def test_a_run_in_which_every_round_failed_fails(configured, tmp_path):
    config = configured(client_lr=1e30, rounds=2)
    with pytest.raises(
        RunFailed, match="every client failed in every round; .* failures: .*diverged.*; take a sm"
    ):
        simulate(Federation(config), tmp_path / "run", None)
    initial = initial_model("mlp-bn", Federation(config).dataset.spec, False, 0).entries
    for name, array in load_file(tmp_path / "run" / "model.safetensors").items():
        np.testing.assert_array_equal(array, initial[name])
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["failures"] >= 4


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"strategy": "fedyog"}, UserError),
        ({"client-lr": 1e30}, RunFailed),
        ({"num-clients": 3, "partition": "iid"}, UserError),
    ],
)
def test_the_server_app_reports_what_ended_it(configured, caplog, monkeypatch, tmp_path, values, error):
    """Under ``flwr run`` the run config comes unchecked."""
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    monkeypatch.setattr("fedbn_flower.server.checks.REGISTERING", 0)
    config = configured(rounds=1).to_user_config()
    grid = InlineGrid(2, config)
    with pytest.raises(error):
        server_main(grid, Context(1, 1, {}, RecordDict(), config | values))
    assert next(iter(values)) in caplog.text or "every client failed" in caplog.text


def test_without_a_run_dir_the_server_app_keeps_its_results_and_says_where(
    configured, caplog, monkeypatch, tmp_path
):
    monkeypatch.setenv("FLWR_HOME", "home")  # a relative one is told in full
    monkeypatch.chdir(tmp_path)
    config = configured(rounds=1).to_user_config()
    assert config["run-dir"] == "auto"
    with caplog.at_level("INFO", "flwr.fedbn"):
        server_main(InlineGrid(2, config), Context(1, 1, {}, RecordDict(), config))
    (folder,) = (tmp_path / "home" / "fedbn-flower" / "runs").iterdir()
    output = [r.message for r in caplog.records if r.message.startswith("results")]
    assert output == [f"results go to {folder}", f"results are in {folder}"]
    assert caplog.records[-1].message == output[-1]
    assert json.loads((folder / "summary.json").read_text())["rounds"] == 1


def test_a_federation_of_more_nodes_than_clients_is_refused(configured):
    config = configured()
    with pytest.raises(UserError, match="num-clients: 2 is not allowed; expected 3, the number of Super"):
        Federation(config).run(InlineGrid(3, config.to_user_config()), [])
