"""Every model on its kinds of data, and under every client: the same bits when resumed on Ray."""

import csv
from itertools import product

import numpy as np
import pytest
from matplotlib.image import imread
from PIL import Image
from sklearn.datasets import load_digits

from fedbn_flower.api.result import load_model
from fedbn_flower.models import MODELS
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation

from ..fedbn_flower.circles import write_circles
from ..quick import some_quick
from .processes import bits

pytestmark = pytest.mark.slow

SPEECHES = "".join(f"{who}:\n{says} " * 3 + "\n\n" for who, says in (
    ("ANNA", "Now is the winter of our discontent made glorious summer"),
    ("BERT", "by this sun of York; and all the clouds that lour'd upon our house"),
    ("CLEO", "in the deep bosom of the ocean buried. Now are our brows bound"),
) for _ in range(3))  # fmt: skip


SITES = """
import numpy as np

def sites(split):
    rng = np.random.default_rng(split == "test")
    data = {name: rng.normal(shift, size=(30, 4)) for shift, name in enumerate("ABC")}
    return {name: (x, (x.sum(1) > 4).astype(int)) for name, x in data.items()}
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The digits as a table and as a folder of pictures, and three people's speeches."""
    folder = tmp_path_factory.mktemp("files")
    digits = load_digits()
    with (folder / "digits.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"pixel{i}" for i in range(64)), "label"])
        writer.writerows([*x, y] for x, y in zip(digits.data.tolist(), digits.target.tolist(), strict=True))
    for i in range(120):
        place = folder / "pictures" / f"digit {digits.target[i]}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray((digits.images[i] * 15).astype(np.uint8)).resize((16, 16)).save(place / f"{i}.png")
    (folder / "speeches.txt").write_text(SPEECHES)
    (folder / "sites.py").write_text(SITES)
    write_circles(folder / "masks")
    return folder


CONVOLUTIONS = ("cnn-bn", "cnn", "resnet20", "simple-cnn", "simple-cnn-bn", "simple-cnn-gn")
"""On 120 pictures: on all digits they would take minutes."""
VECTORS = ("mlp-bn", "2nn", "linear")
KINDS = {
    "pictures": ("{}/pictures", "shards:2", CONVOLUTIONS),
    "digits": ("digits", "dirichlet:0.5", VECTORS),
    "table": ("{}/digits.csv", "dirichlet:0.5", VECTORS),
    "text": ("text:{}/speeches.txt", "natural:speaker", ("char-lstm", "char-lstm-small")),
    "synthetic": ("synthetic:1,1", "natural:client", VECTORS),
    "function": ("{}/sites.py:sites", "natural:client", ("linear",)),
    "quadratic": ("quadratic:3", "natural:client", ("linear",)),
    "masks": ("{}/masks", "iid", ("unet",)),
}
CHANGED = {"augment": "crop-flip", "feature_shift": "none+inverted+blended"}
"""Pictures of digits are augmented, and other ones at each client."""
METRICS = {"quadratic": "distance,r2,rmse", "masks": "dice,iou,sensitivity,auroc", "text": "accuracy,f1,ece"}
"""The headline and further metrics, but for classes."""
CLIENTS = ("shared", "silobn", "fedbn")
CASES = [(kind, *chosen) for kind, (*_, models) in KINDS.items() for chosen in product(models, CLIENTS)]
QUICK = {(kind, models[0], CLIENTS[i % 3]) for i, (kind, (*_, models)) in enumerate(KINDS.items())}
"""Of every kind of data its first model: to Ray, models differ in their arrays alone."""


def test_none_is_left_out():
    """`unet-3d` is `unet` by another name, on volumes."""
    assert {model for _, model, _ in CASES} == {*MODELS} - {"unet-3d"}


@pytest.mark.usefixtures("pictures_not_drawn", "few_draws")
@pytest.mark.parametrize(
    ("kind", "model", "client"), some_quick(CASES, {i for i, case in enumerate(CASES) if case in QUICK})
)
def test_the_same_bits_when_resumed_on_ray(configured, files, tmp_path, pool, kind, model, client):
    dataset, partition, _ = KINDS[kind]
    chosen = {
        "dataset": dataset.format(files), "partition": partition, "model": model, "client": client,
        "num_clients": 3, "strategy": "fedadam", "client_lr": 0.01, "local_epochs": 1, "eval_data": "local",
        "metrics": METRICS.get(kind, "accuracy,auroc,average-precision"),
    }  # fmt: skip
    chosen |= CHANGED if kind == "digits" else {}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    summary = simulate(Federation(configured(**chosen)), whole, None).as_json()
    assert summary["failures"] == 0
    assert np.isfinite(summary["mean"]["loss"])
    simulate(Federation(configured(**chosen, rounds=1)), parts, None)
    resumed = simulate(Federation(configured(**chosen, resume=str(parts))), parts, pool).as_json()
    assert bits(parts) == bits(whole)
    states = [(folder / "states.safetensors").read_bytes() for folder in (whole, parts)]
    assert states[0] == states[1]
    assert resumed["clients"] == summary["clients"]
    assert load_model(whole, client=2)


@pytest.mark.parametrize("kind", ["quadratic", "masks"])
def test_the_figures_of_each_kind_can_be_drawn(configured, files, tmp_path, kind):
    """Of numbers and of masks; the others have those of classes."""
    dataset, partition, (model, *_) = KINDS[kind]
    config = configured(
        dataset=dataset.format(files), partition=partition, model=model, num_clients=3, rounds=1
    )
    simulate(Federation(config), tmp_path / "run", None)
    assert imread(tmp_path / "run" / "curves.png").ndim == 3
    assert "<svg" in (tmp_path / "run" / "report.html").read_text()
