"""What a site answers to a server that asks for more than a run needs."""

import json

import numpy as np
import pytest
from flwr.app import ArrayRecord

from clients import FedAvgClient, NamedArrays, Update
from fedbn_flower.config.making import run_config
from fedbn_flower.extensions.privacy import only_trained
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.server.federation import Federation
from strategies.messages.npy import encoded
from tests.clients.helpers import make_client
from tests.fedbn_flower.data.test_own_data import Sites

from ..records.helpers import rows_of
from .asked import Site
from .runs import model, of_examples, of_local, run_on, simulated
from .test_local_release import Tied

NOTIONS = {"local": of_local, "example": of_examples}


@pytest.fixture(params=NOTIONS)
def notion(request, configured):
    """Makes a small configuration of one of the notions that hold against the server, with a secret key."""
    return lambda **keys: NOTIONS[request.param](configured, **{"dp_seed": -1, **keys})


def test_a_site_sends_no_metrics_whatever_the_message_asks(notion):
    """Not even if training is asked to end with an evaluation, on any split."""
    config = notion()
    public = {"num-examples": 1}
    if config.dp == "example":
        count = len(inputs_of(config).partitions.train[0])
        public = {"num-examples": count, "local-steps": -(-count // 240)}
    for splits in ("test", "train", "val,test"):
        assert Site(config).metrics("train", eval_splits=splits, classes=10, fine_tune=3) == public


@pytest.mark.parametrize("splits", ["test", "train", "val"])
def test_a_site_evaluates_nothing(notion, splits):
    config = notion()
    line = f"privacy: with dp {config.dp!r} this client sends no metrics"
    assert Site(config).refusal("evaluate", eval_splits=splits).endswith(line)


@pytest.mark.parametrize(
    ("kind", "dp"), [("train", "local"), ("train", "example"), ("train", "none"), ("evaluate", "none")]
)
def test_a_site_chooses_among_no_models(kind, dp, configured):
    """Of ten models, each of which predicts one class, the best says which class a site has most of."""
    config = NOTIONS[dp](configured, dp_seed=-1) if dp in NOTIONS else configured(num_clients=2)
    initial = inputs_of(config).initial().entries
    models = {f"model.{i}": ArrayRecord({n: encoded(a + i) for n, a in initial.items()}) for i in range(2)}
    assert "chooses among no models in a run of" in Site(config).refusal(kind, records=models)


@pytest.mark.parametrize("query", ["counts", "moments"])
def test_a_site_tells_no_statistics(notion, query):
    config = notion()
    line = f"privacy: with dp {config.dp!r} this site tells no {query} of its data"
    assert Site(config).refusal(f"query.{query}").endswith(line)


@pytest.mark.parametrize("kind", ["train", "evaluate", "query.sizes"])
def test_why_a_site_fails_is_in_its_own_log_only(notion, kind, tmp_path, caplog):
    """A server that names other values than a site's rows have would be told those that they have."""
    rows = "".join(f"{age},{'f' if age % 2 else 'm'},{age % 3 == 0:d}\n" for age in range(20, 60))
    (tmp_path / "patients.csv").write_text(f"age,sex,outcome\n{rows}61,intersex,0\n")
    keys = {"dataset": "shape:3:2", "columns": "age,sex=f|m", "label_column": "outcome", "model": "linear"}
    config = notion(**keys, dp_metrics=1.0)
    site = Site(config, data_path=str(tmp_path / "patients.csv"), cache_dir=str(tmp_path))
    reason = site.refusal(kind)
    if kind == "query.sizes" and config.dp == "local":
        assert reason.endswith("this site does not tell how many examples it has")
        return
    assert reason == (
        "privacy: this client does not say why it failed, since that may quote its data; its own log does"
    )
    (line,) = [record.getMessage() for record in caplog.records if "not answered" in record.message]
    assert "intersex" in line
    without = dict.fromkeys(("dp-noise", "dp-delta", "dp-metrics"), 0.0) | {"dp": "none"}
    open_run = run_config({**config.to_user_config(), **without})
    assert "intersex" in Site(open_run, **site.node_config).refusal("train")


def test_an_update_that_is_not_finite_is_answered_like_any_other(configured):
    """A rate at which training diverges: with dp none the error tells so."""
    site = Site(of_local(configured, dp_seed=-1, dp_noise=0.001, model="2nn"))
    reply = site.ask("train", client_lr=1e30)
    assert dict(reply.content["metrics"]) == {"num-examples": 1}
    sent = np.concatenate([array.numpy().ravel() for array in reply.content["arrays"].values()])
    initial = inputs_of(site.config).initial().entries
    before = np.concatenate([initial[name].ravel() for name in reply.content["arrays"]])
    assert np.std(sent - before) == pytest.approx(0.001, rel=0.05)
    assert "diverged" in Site(configured(model="2nn", client="shared")).refusal("train", client_lr=1e30)


def test_a_site_checks_itself_that_training_protects_examples(configured):
    """A server that skips its own check: prototypes of the classes would leave without noise."""
    config = of_examples(configured, objective="fedproto", strategy="fedproto", model="2nn")
    assert "objective FedProto does not set `example_wise`" in Site(config).refusal("train")
    config = of_examples(configured, model="mlp-bn", client="fedbn")
    assert "BatchNorm mixes examples" in Site(config).refusal("train")


def test_of_what_is_not_trained_a_site_sends_back_what_it_got():
    client = make_client(FedAvgClient, model=Tied())
    received = client.get_parameters({})
    moved = NamedArrays({name: array + 1 for name, array in received.by_name().items()})
    sent = only_trained(client, received, Update(moved, 3, {"local-steps": 2})).arrays.by_name()
    for name, before in received.by_name().items():
        np.testing.assert_array_equal(sent[name], before + (name != "count"))


def test_the_servers_model_is_evaluated_and_nothing_else(notion, tmp_path):
    """On the server's own test set; the columns of clients stay empty."""
    simulated(notion(), tmp_path)
    written = rows_of(tmp_path)
    assert {bool(row["global-accuracy"]) for row in written} == {True}
    assert not {"loss", "accuracy", "train-loss", "client-mean-loss"} & {
        name for row in written for name, value in row.items() if value
    }
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert 0 <= summary["global"]["accuracy"] <= 1
    assert not summary["mean"]
    of_clients = rows_of(tmp_path, "clients.csv")
    assert {row["phase"] for row in of_clients} == {"train"}


@pytest.mark.slow
def test_supernodes_give_the_bits_of_the_simulation(notion, tmp_path):
    config = notion(dp_seed=5)
    simulated(config, tmp_path / "simulation")
    run_on(
        Sites(config, [{"partition-id": i} for i in range(config.num_clients)]), config, tmp_path / "nodes"
    )
    assert model(tmp_path / "nodes") == model(tmp_path / "simulation")
    found, expected = (rows_of(tmp_path / name) for name in ("nodes", "simulation"))
    for row, other in zip(found, expected, strict=True):
        assert {n: v for n, v in row.items() if "second" not in n} == {
            n: v for n, v in other.items() if "second" not in n
        }


def test_what_is_of_no_use_without_metrics_is_refused(notion, caplog):
    for keys, line in (
        ({"eval_model": "local"}, "eval-model: 'local' is not allowed; expected 'aggregated'"),
        ({"fine_tune": 2}, "fine-tune: 2 is not allowed; expected 0"),
        ({"holdout_clients": 1}, "holdout-clients: 1 is not allowed; expected 0"),
    ):
        with pytest.raises(
            ValueError, match=f"^{line}, since clients send no other metrics than dp-metrics, with dp"
        ):
            notion(**keys)


def test_a_run_in_which_nothing_is_evaluated_is_told_beforehand(configured):
    config = of_local(configured, dataset="shape:1x8x8:10")
    (line,) = [line for line in Federation(config).warnings if "nothing is evaluated" in line]
    assert line == (
        "dp: with 'local' clients send no metrics without dp-metrics, and the server lacks data: nothing is "
        "evaluated"
    )
