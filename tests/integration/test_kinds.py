"""Every built-in model on its kinds of data under every client: the same bits on Ray, and when resumed."""

import csv

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from fedbn_flower.models import MODELS
from fedbn_flower.results.result import load_model
from fedbn_flower.rounds import Federation
from fedbn_flower.runtime.pool import RayPool
from fedbn_flower.simulation import simulate

from .test_runtimes import bits, flwr_run, marked_environment, run_sim  # noqa: F401

pytestmark = pytest.mark.slow

SPEECHES = "".join(f"{who}:\n{says} " * 3 + "\n\n" for who, says in (
    ("ANNA", "Now is the winter of our discontent made glorious summer"),
    ("BERT", "by this sun of York; and all the clouds that lour'd upon our house"),
    ("CLEO", "in the deep bosom of the ocean buried. Now are our brows bound"),
) for _ in range(3))  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The digits as a table and as a folder of pictures, and three people's speeches."""
    folder = tmp_path_factory.mktemp("files")
    digits = load_digits()
    with (folder / "digits.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"pixel{i}" for i in range(64)), "label"])
        writer.writerows([*x, y] for x, y in zip(digits.data.tolist(), digits.target.tolist(), strict=True))
    for i in range(200):
        place = folder / "pictures" / f"digit {digits.target[i]}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray((digits.images[i] * 15).astype(np.uint8)).resize((16, 16)).save(place / f"{i}.png")
    (folder / "speeches.txt").write_text(SPEECHES)
    return folder


IMAGES = ("mlp-bn", "2nn", "cnn", "cnn-bn", "resnet20", "linear")
VECTORS = ("mlp-bn", "2nn", "linear")
KINDS = {
    "digits": ("digits", "dirichlet:0.5", IMAGES),
    "pictures": ("{}/pictures", "shards:2", ("mlp-bn", "resnet20", "simple-cnn")),
    "table": ("{}/digits.csv", "dirichlet:0.5", VECTORS),
    "text": ("text:{}/speeches.txt", "natural:speaker", ("char-lstm", "char-lstm-small")),
    "synthetic": ("synthetic:1,1", "natural:client", VECTORS),
    "quadratic": ("quadratic:3", "natural:client", ("linear",)),
}
CASES = [(kind, model) for kind, (*_, models) in KINDS.items() for model in models]


def test_no_model_is_left_out():
    assert {model for _, model in CASES} == set(MODELS)


@pytest.fixture(scope="module")
def pool():
    pool = RayPool(2, verbose=False)
    yield pool
    pool.close()


@pytest.mark.parametrize("client", ["fedavg", "silobn", "fedbn"])
@pytest.mark.parametrize(("kind", "model"), CASES)
def test_the_same_bits_on_ray_and_when_resumed(configured, files, tmp_path, pool, kind, model, client):
    dataset, partition, _ = KINDS[kind]
    chosen = {
        "dataset": dataset.format(files), "partition": partition, "model": model, "client": client,
        "num_clients": 3, "strategy": "fedadam", "client_lr": 0.01, "local_epochs": 1, "eval_data": "local",
    }  # fmt: skip
    whole, parts, on_ray = tmp_path / "whole", tmp_path / "parts", tmp_path / "ray"
    summary = simulate(Federation(configured(**chosen, rounds=3)), whole, None)
    assert summary["failures"] == 0
    assert np.isfinite(summary["mean"]["loss"])
    simulate(Federation(configured(**chosen, rounds=1)), parts, None)
    resumed = simulate(Federation(configured(**chosen, rounds=3, resume=str(parts))), parts, None)
    simulate(Federation(configured(**chosen, rounds=3)), on_ray, pool)
    assert bits(parts) == bits(whole) == bits(on_ray)
    assert resumed["clients"] == summary["clients"]
    assert load_model(whole, client=2)


@pytest.mark.parametrize("kind", ["table", "text"])
def test_the_same_bits_under_flwr_run(files, tmp_path, marked_environment, kind):  # noqa: F811
    dataset, partition, _ = KINDS[kind]
    model = {"table": "mlp-bn", "text": "char-lstm-small"}[kind]
    given = {
        "dataset": dataset.format(files), "partition": partition, "model": model, "client": "silobn",
        "num-clients": 3, "rounds": 2, "cache-dir": str(tmp_path / "cache"),
    }  # fmt: skip
    words = " ".join(f"{k}={v!r}" for k, v in {**given, "run-dir": str(tmp_path / "flwr")}.items())
    flwr_run(tmp_path, marked_environment[1], words, 3)
    flags = [word for key, value in given.items() for word in (f"--{key}", value)]
    done = run_sim(*flags, "--run-dir", tmp_path / "ray")
    assert done.returncode == 0, done.stderr
    assert bits(tmp_path / "flwr") == bits(tmp_path / "ray")
