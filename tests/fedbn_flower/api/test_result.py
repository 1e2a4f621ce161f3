"""What a run from Python gives back: tables, models and a picture."""

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch.utils.data import TensorDataset

from clients import CLIENTS
from fedbn_flower import Result, UserError, load_model
from fedbn_flower.config.making import run_config
from fedbn_flower.site.inputs import local_task

from ..results.html_page import Page
from ..results.written import csv_rows
from .own_objects import Fixed, thin


@pytest.mark.usefixtures("drawn_figures")
def test_what_comes_back(run, tmp_path):
    result = run(strategy="fedavg", client="shared", rounds=np.int64(3))
    assert result.folder.parent.name == "runs"
    output = [float(row["global-loss"]) for row in csv_rows(result.folder / "metrics.csv")]
    assert result.history["global-loss"].tolist() == output
    assert result.history["round"].tolist() == [1, 2, 3]
    evaluated = result.clients.query("phase == 'evaluate' and partition == 1")
    assert evaluated["accuracy"].iloc[-1] == result.summary["clients"]["1"]["accuracy"]
    assert result.plot()._repr_png_().startswith(b"\x89PNG")
    accuracy, loss = result.plot().axes
    assert (accuracy.get_ylabel(), loss.get_ylabel()) == ("accuracy, %", "loss")
    lines = {line.get_label().partition("\n")[0]: line for line in loss.lines}
    assert lines["global model, held out"].get_ydata().tolist() == output
    assert Result(result.folder).summary == result.summary
    assert repr(result) == f"Result({str(result.folder)!r}, rounds=3)"


@pytest.mark.usefixtures("drawn_figures")
def test_a_notebook_shows_the_last_round_s_metrics_and_the_curves(run):
    data = [TensorDataset(torch.rand(20, 1, 8, 8), torch.arange(20) % 2) for _ in range(2)]
    result = run(strategy="fedavg", client="shared", data={"<b>Lyon": data[0], "Nice": data[1]})
    html, summary = result._repr_html_(), result.summary
    header, *rows = Page(html).rows
    shown = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert [name for name in header if name in summary["mean"]] == ["accuracy", "loss"]
    of_lyon, mean = (100 * of["accuracy"] for of in (summary["clients"]["0"], summary["mean"]))
    assert shown["client <b>Lyon"]["accuracy"].startswith(f"{of_lyon:.1f} %")
    assert shown["mean over examples"]["accuracy"].startswith(f"{mean:.1f} %")
    loss = shown["mean over clients"]["loss"].split()[0]
    assert float(loss) == pytest.approx(summary["client-mean"]["loss"], abs=1e-3)
    assert "client &lt;b&gt;Lyon" in html
    assert html.count("<svg") == 1
    assert "<script" not in html
    assert "<b>" not in html


NOT_A_MODEL = {"fedbabu", "per-fedavg", "knn-per"}
UNIONS = ("fedbn+apfl", "silobn+pfedme", "fedbn+fedala", "silobn+fedrod", "fedper+apfl")


@pytest.mark.sampled(21)
@pytest.mark.parametrize("eval_data", ["global", "local"])
@pytest.mark.parametrize(
    "client",
    [*sorted(CLIENTS.keys() - {"alone", "fedpac", *NOT_A_MODEL}), "fedbn+ditto", "silobn+fedrep", *UNIONS],
)
def test_a_client_s_model_scores_what_the_client_reported(run, client, eval_data, cache_dir):
    """On all test examples and on the client's: its own BatchNorm and nobody else's, the last shared entries.

    Of `NOT_A_MODEL` they report what no client keeps: FedBABU and Per-FedAvg of a copy that they tune,
    kNN-Per with its neighbours.
    """
    result = run(client=client, eval_data=eval_data)
    config = run_config({"dataset": "digits", "cache-dir": str(cache_dir), "eval-data": eval_data})
    for number in (0, 1):
        test = local_task(config, number, {}).evaluation["test"]
        images, labels = next(iter(test.load([np.arange(len(test))])))
        model = load_model(result.folder, client=number)
        assert not model.training
        with torch.no_grad():
            right = (model(images).argmax(1) == labels).double().mean().item()
        assert right == pytest.approx(result.summary["clients"][str(number)]["accuracy"], abs=1e-9)
    own = [
        torch.cat([x.flatten() for x in load_model(result.folder, n).state_dict().values()]) for n in (0, 1)
    ]
    assert torch.equal(*own) == (client in ("shared", "fbn", "fixbn", "fedinit"))


def test_the_aggregated_model_has_the_weights_of_the_file_and_needs_no_clients_code(run, tmp_path):
    (tmp_path / "mine.py").write_text("from clients import FedAvgClient\nclass Mine(FedAvgClient): pass\n")
    result = run(client=f"{tmp_path / 'mine.py'}:Mine", softmax_output=True, rounds=1)
    (tmp_path / "mine.py").unlink()
    entries = load_file(result.folder / "model.safetensors")
    found = result.model().state_dict()
    assert found.keys() == entries.keys()
    assert all(np.array_equal(found[name].numpy(), entry) for name, entry in entries.items())


def test_models_that_cannot_be_had_are_one_line(run, tmp_path):
    result = run(partition="iid", num_clients=4, fraction_train=0.25, rounds=1)
    (trained,) = result.clients.query("phase == 'train'")["partition"]
    other = (trained + 1) % 4
    result.model(client=trained)
    unsaved = run(checkpoint_every=0, rounds=1)
    named = run(model=thin, client="shared", rounds=1)
    for load, words in (
        (result.model, "client: None is not allowed; expected 0 to 3: 5 entries, such as 2.weight"),
        (lambda: result.model(client=4), "client: 4 is not allowed; expected 0 to 3"),
        (lambda: result.model(client=True), "client: True is not allowed; expected 0 to 3"),
        (lambda: result.model(client=other), f"expected one that has trained: {trained}"),
        (lambda: unsaved.model(client=0), "the run saved no local entries of clients"),
        (lambda: load_model(named.folder), "model: 'thin@.* to be given again, from Python: model=thin$"),
        (lambda: result.model(client="Lyon"), "client: 'Lyon' is not allowed; expected 0 to 3$"),
        (lambda: load_model(named.folder, model=Fixed), "does not match the weights in"),
        (lambda: load_model(tmp_path / "no"), "run-dir: .*no' is not the folder of a run: it has no config"),
    ):
        with pytest.raises(UserError, match=words) as caught:
            load()
        assert "\n" not in str(caught.value)
    assert load_model(named.folder, model=thin)[1].in_features == 64


def test_a_client_is_called_by_the_name_that_its_data_give_it(run):
    rng = np.random.default_rng(0)
    sites = {
        name: TensorDataset(torch.tensor(rng.normal(size=(20, 3)), dtype=torch.float32), torch.arange(20) % 2)
        for name in ("Paris", "Lyon")
    }
    result = run(data=sites, strategy="fedavg", client="fedbn", model="mlp-bn", rounds=1)
    own, by_name = (result.model(client=client).state_dict() for client in (0, "Lyon"))
    assert all(torch.equal(own[key], entry) for key, entry in by_name.items())
    assert not all(torch.equal(result.model(1).state_dict()[key], entry) for key, entry in by_name.items())
    with pytest.raises(UserError) as caught:
        load_model(result.folder, client="Lion")
    assert str(caught.value) == (
        "client: 'Lion' is not allowed (did you mean 'Lyon'?); expected 0 to 1, or a name: 'Lyon', 'Paris'"
    )
    with pytest.raises(UserError, match=r"^client: 2 is not allowed; expected 0 to 1, or a name: 'Lyon'"):
        result.model(client=2)
