"""Runs that learn masks: from folders, arrays and Datasets, under every client; and what is refused."""

import json
import re

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, roc_auc_score
from torch import nn

from clients import FedBNClient, FedPerClient, FedRepClient, Segmentation
from fedbn_flower.core.errors import UserError
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.results.report.run_page import run_page
from fedbn_flower.results.run_reader import Run
from fedbn_flower.site.inputs import local_task
from tests.quick import some_quick

from ..circles import circles, write_circles


class TinyNet(nn.Module):
    """Two convolutions of images or volumes, the second of which is the head."""

    def __init__(self, spec, convolution=nn.Conv2d, norm=nn.BatchNorm2d):
        super().__init__()
        self.first = convolution(spec.shape[0], 6, 3, padding=1)
        self.norm = norm(6)
        self.second = convolution(6, spec.outputs, 1)

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x))))


def tiny(spec):
    return TinyNet(spec)


def of_volumes(spec):
    return TinyNet(spec, nn.Conv3d, nn.BatchNorm3d)


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    return write_circles(tmp_path_factory.mktemp("circles") / "sites")


KEYS = {"batch_size": 4, "client_optimizer": "adamw", "client_lr": 0.01, "strategy": "fedavg", "model": tiny}


@pytest.fixture
def data():
    """Images and masks of three classes: two sites' discs, of which the second site's are class 2."""
    x, y = (np.concatenate(arrays) for arrays in zip(circles(0), circles(1), strict=True))
    y[12:] *= 2
    y[:, 0] = 255
    order = np.random.default_rng(0).permutation(24)
    return x[order[:16]], y[order[:16]], x[order[16:]], y[order[16:]]


@pytest.mark.slow
def test_auto_learns_masks_of_sites_by_a_unet(run, sites):
    """The default model and partition; the metrics of every column; the model of a client."""
    result = run(dataset=str(sites), eval_data="local", **{**KEYS, "model": "auto", "rounds": 1})
    summary = result.summary
    config = json.loads((result.folder / "config.json").read_text())
    assert (config["model"], config["partition"]) == ("unet", "natural:folder")
    assert summary["compared-by"] == "dice"
    assert [client["name"] for client in summary["clients"].values()] == ["lyon", "turin"]
    names = {f"{prefix}{name}" for prefix in ("", "client-mean-", "pooled-") for name in ("dice", "iou")}
    assert names | {"worst-client-dice", "accuracy", "loss"} <= set(result.history.columns)
    model = result.model(client=1)
    assert model(torch.zeros(3, 1, 16, 16)).shape == (3, 2, 16, 16)
    assert model(torch.zeros(1, 1, 13, 18)).shape == (1, 2, 13, 18)


def test_pooled_metrics_are_scikit_learns(run, data):
    """Of clients that share the model and divide the test set; void pixels are left out."""
    keys = {"client": "shared", "eval_data": "local", "metrics": "dice,f1,auroc", "thresholds": 20_000}
    result = run(data=data, partition="iid", **KEYS, **keys)
    x, y = data[2:]
    with torch.no_grad():
        output = result.model()(torch.tensor(x)[:, None].float() / 255)
    said, there = output.argmax(1).numpy(), y != 255
    by_class = f1_score(y[there], said[there], average=None, labels=[0, 1, 2], zero_division=0)
    pooled = result.summary["pooled"]
    assert [pooled[f"dice-{number}"] for number in (1, 2)] == pytest.approx(by_class[1:])
    assert pooled["dice"] == pooled["f1"] == pytest.approx(by_class[1:].mean())
    assert pooled["accuracy"] == pytest.approx((y[there] == said[there]).mean())
    p = output.double().softmax(1).movedim(1, -1).numpy()[there]
    assert pooled["auroc"] == pytest.approx(roc_auc_score(y[there], p, multi_class="ovr"), abs=1e-3)
    assert result.summary["global"]["dice"] == pytest.approx(pooled["dice"])


@pytest.mark.slow
def test_the_report_names_the_classes_of_masks(run, data, tmp_path, monkeypatch):
    """In the confusion matrix and the table by class, without which they have numbers."""
    predictions = pytest.importorskip("fedbn_flower.study.predictions")
    folder, drawn = tmp_path / "named", []
    folder.mkdir()
    for split, x, y in (("train", *data[:2]), ("test", *data[2:])):
        np.save(folder / f"{split}-images.npy", x)
        np.save(folder / f"{split}-masks.npy", y)
    monkeypatch.setitem(
        predictions.FIGURES,
        "Confusion matrix",
        ("confusion-matrix", lambda total, names: drawn.append(names)),
    )
    for names in (["0", "1", "2"], ["background", "liver", "lesion"]):
        if names[0] != "0":
            (folder / "classes.txt").write_text("\n".join(names))
        result = run(dataset=str(folder), partition="iid", client="shared", eval_data="local", **KEYS)
        drawn.clear()
        page = run_page(Run.read(result.folder))
        assert drawn == [names] * 3
        assert all(f"<td>{name}</td>" in page for name in names[1:])
        assert "<td>background</td>" not in page


@pytest.mark.parametrize("loss", ["auto", "dice-ce"])
def test_volumes_are_learnt_by_a_model_of_ones_own(run, loss):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, (10, 4, 5, 6))
    x = (y + rng.normal(0, 0.1, y.shape)).astype(np.float32)
    keys = {**KEYS, "model": of_volumes, "client": "shared", "partition": "iid", "client_lr": 0.03}
    result = run(data=(x[:8], y[:8], x[8:], y[8:]), **keys, loss=loss, local_epochs=4)
    with torch.no_grad():
        said = result.model()(torch.tensor(x[8:])[:, None]).argmax(1).numpy()
    found = result.summary["pooled"]["dice"]
    assert found == pytest.approx(f1_score(y[8:].ravel(), said.ravel()))
    assert found > 0.7


@pytest.mark.slow
@pytest.mark.parametrize(
    "client",
    some_quick(
        [
            *("shared", "ditto", "fedbn+ditto", "fedper", "pfedme", "lg-fedavg", "fedala"),
            *("apfl", "silobn", "fedbn", "fedrep", "fedbabu", "per-fedavg", "fedbn+apfl"),
        ],
        range(7),
    ),
)
def test_every_client_learns_masks(run, sites, client):
    summary = run(dataset=str(sites), client=client, **KEYS).summary
    assert summary["failures"] == 0
    assert 0 <= summary["mean"]["dice"] <= 1


def test_the_head_of_a_unet_is_its_last_convolution(configured, sites):
    config = configured(dataset=str(sites), model="unet", partition="natural:folder")
    task = local_task(config, 0, {})
    head = {"classify.weight", "classify.bias"}
    assert FedPerClient.local_entries(task.model) == FedRepClient.local_entries(task.model) == head
    kept = FedBNClient.local_entries(task.model)
    assert len(kept) == 10 * 5
    assert not kept & head


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"problem": "classification"}, "problem: 'classification' .* it needs classes, not masks"),
        ({"loss": "focal"}, "loss: 'focal' is not allowed; .* it needs classes, and .* has masks"),
        ({"client": "fedrod"}, "client: 'fedrod' is not allowed; .* it balances classes"),
        ({"client": "knn-per"}, "client: 'knn-per' is not allowed; .* neighbours vote for classes"),
        ({"objective": "moon"}, "objective: 'moon' .* an example's features, and a mask has them for"),
        ({"softmax_output": True}, "softmax-output: True is not allowed; expected false: of masks the loss"),
        ({"model": "cnn-bn"}, r"model: 'cnn-bn' .* the shape \(2, 2, 16, 16\), not \(2, 2\)"),
        ({"partition": "dirichlet:0.5"}, "'iid' or 'natural:COLUMN': an example has a mask, not one class"),
    ],
)
def test_what_masks_do_not_go_with_is_one_line(refusal, sites, keys, told):
    given = {"dataset": str(sites), "model": "unet", "partition": "natural:folder", "strategy": "fedavg"}
    assert re.search(told, refusal(**given | keys))


@pytest.mark.parametrize("loss", ["dice", "dice-ce"])
def test_losses_of_masks_are_refused_for_classes(refusal, loss):
    assert "it needs masks and problem 'segmentation'" in refusal(loss=loss)


def test_one_class_only_is_refused(run, data):
    with pytest.raises(UserError, match="has one class only: nothing can be learnt"):
        run(data=(data[0], 0 * data[1], data[2], 0 * data[3]), **KEYS)


def test_supernodes_say_what_their_masks_look_like(configured, sites):
    config = configured(dataset="shape:1x16x16:2:masks", partition="iid")
    assert type(inputs_of(config).dataset.problem) is Segmentation
    assert inputs_of(config, str(sites)).dataset.problem.metrics == ("loss", "accuracy", "dice", "iou")
    with pytest.raises(
        UserError, match=r"data-path: .* examples of 1x8x8 with masks of 2 classes, not of 1x16"
    ):
        inputs_of(configured(dataset="shape:1x8x8:2:masks", partition="iid"), str(sites)).dataset
