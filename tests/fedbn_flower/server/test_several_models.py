"""Strategies that keep several models: whose is which, on each kind of data, of clients and of layers."""

import json
from itertools import cycle

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

from fedbn_flower import simulate
from fedbn_flower.core.errors import UserError
from fedbn_flower.results.checkpoints.checkpoint_folder import CheckpointFolder
from tests.quick import diagonal_quick, some_quick

from ..circles import circles

SETTINGS = {
    "ifca": {},
    "cfl": {"cfl_eps_1": 9.0, "cfl_eps_2": 0.0, "cfl_from_round": 1},
    "fedap": {},
    "fedpac": {"objective": "fedpac", "client": "fedpac"},
    "fedamp": {"objective": "fedprox", "mu": 0.1},
}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 6)).astype(np.float32)
NUMBERS = (X @ RNG.normal(size=6)).astype(np.float32)
CLASSES = RNG.integers(0, 3, 90)
SPEECHES = "".join(
    f"{who}:\n{'Now is the winter of our discontent ' * 12}\n\n" for who in ("ANNA", "BERT", "CLEO")
)


def perceptron(spec):
    return nn.Sequential(
        nn.Linear(spec.shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, spec.outputs)
    )


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self, spec):
        super().__init__()
        size = spec.shape[0]
        self.first, self.second = nn.Linear(size, size), nn.Linear(size, size)
        self.second.weight = self.first.weight
        self.norm, self.head = nn.BatchNorm1d(size), nn.Linear(size, spec.outputs)

    def forward(self, x):
        return self.head(torch.relu(self.second(self.norm(torch.relu(self.first(x))))))


def tied(spec):
    return Tied(spec)


def convolutions(spec):
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, spec.outputs, 1))


@pytest.fixture
def run(tmp_path):
    def start(strategy, folder="run", **keys):
        of_table = {"data": (X[:60], CLASSES[:60], X[60:], CLASSES[60:]), "model": perceptron}
        given = {} if "dataset" in keys or "data" in keys else of_table
        base = {"client": "shared", "rounds": 2, "batch_size": 10, "num_clients": 3, "backend": "inline"}
        return simulate(
            strategy=strategy, run_dir=tmp_path / folder, **base | given | SETTINGS.get(strategy, {}) | keys
        )

    return start


def model_of(result, client):
    return {name: entry.numpy() for name, entry in result.model(client=client).state_dict().items()}


def models_in(folder):
    files = {path.stem: load_file(path) for path in (folder / "models").glob("*.safetensors")}
    return {"main": load_file(folder / "model.safetensors"), **files}


def same(ours, others):
    assert ours.keys() == others.keys()
    for name, entry in ours.items():
        np.testing.assert_array_equal(entry, others[name], err_msg=name)


@pytest.mark.parametrize("strategy", some_quick(SETTINGS, {0, 3}))
def test_a_clients_model_is_its_own_and_who_never_answers_has_the_main_model(run, strategy):
    """At most half of four clients train, and some of their answers are lost; IFCA's choose all the same."""
    result = run(strategy, num_clients=4, fraction_train=0.5, dropout=0.4, seed=3)
    names, models = json.loads((result.folder / "models/clients.json").read_text()), models_in(result.folder)
    last = result.clients[(result.clients["round"] == 2) & (result.clients.phase == "evaluate")]
    evaluated = dict(zip(last.partition.astype(str), last.model, strict=True))
    assert {client: name for client, name in evaluated.items() if name != "main"} == names
    for client in range(4):
        same(model_of(result, client), models[evaluated[str(client)]])
    same(model_of(result, None), models["main"])
    assert result.summary["global"] is None
    assert 0 < result.summary["mean"]["accuracy"] <= 1
    checkpoint = CheckpointFolder(result.folder / "checkpoint").load()
    assert checkpoint.models.keys() == models.keys() - {"main"}
    answered = set(result.clients.query("phase == 'train'")["partition"])
    assert 0 < len(answered) < 4
    for client in set(range(4)) - answered:
        name = evaluated[str(client)]
        assert name.startswith("cluster-") if strategy == "ifca" else name == "main" or strategy == "cfl"


ONE_MODEL = {
    "mean": "median", "protocol": "fedbuff:2", "compress": "bf16", "compress_down": "bf16",
    "selection": "power-of-choice:3", "client": "hbn", "decide_by": "server",
}  # fmt: skip
"""What knows of one model."""
REFUSED = [
    *(
        (strategy, {key: value}, f"^{key.replace('_', '-')}: {value!r} is not .*strategy( '|=){strategy}")
        for (key, value), strategy in zip(ONE_MODEL.items(), cycle(SETTINGS), strict=False)
    ),
    ("fedpac", {"client": "alone"}, "^client: (the default )?'alone' is not allowed; expected "),
    ("ifca", {"dp": "client", "dp_noise": 1.0, "dp_clip": 1.0}, "^dp: 'client' is not allowed"),
    ("fedap", {"client": "fedbn"}, "^(?=.*shares).*strategy 'fedap', which compares clients"),
    ("fedap", {"norm": "layer"}, "^(?=.*BatchNorm).*strategy 'fedap', which compares clients"),
    ("fedpac", {"freeze": "3"}, "^freeze: .* strategy 'fedpac', which mixes heads"),
]


@pytest.mark.parametrize(("strategy", "keys", "line"), REFUSED)
def test_what_is_refused_in_a_line(run, strategy, keys, line):
    with pytest.raises(UserError, match=line) as caught:
        run(strategy, **keys)
    assert "\n" not in str(caught.value)


def test_new_clients_choose_too(run):
    result = run("ifca", holdout_clients=1)
    new = result.clients[result.clients.phase == "new"]
    assert len(new) == 1
    assert new.model.str.startswith("cluster-").all()


def zeros(spec):
    model = perceptron(spec)
    for weights in model.parameters():
        nn.init.zeros_(weights)
    return model


def test_models_to_choose_from_have_to_differ(run):
    first = run("ifca", rounds=1)
    with pytest.raises(UserError, match=r"^init: .* its models have to differ"):
        run("ifca", "again", init=str(first.folder))
    with pytest.raises(UserError, match=r"^model: .* drawn when it is made, .* its models have to differ"):
        run("ifca", "zeros", model=zeros)


@pytest.mark.slow
def test_models_differ_by_seed_and_the_first_is_the_runs(run):
    """With a rate of nothing, models stay what they were when they began."""
    still = {"rounds": 1, "client_lr": 1e-30, "weighting": "uniform"}
    ours, others = (models_in(run("ifca", str(seed), seed=seed, **still).folder) for seed in (0, 1))
    of_run = load_file(run("fedavg", "one", **still).folder / "model.safetensors")
    for name in [name for name, entry in ours["main"].items() if entry.ndim == 2]:
        np.testing.assert_allclose(ours["cluster-0"][name], of_run[name], atol=1e-7)
        several = [models[f"cluster-{i}"][name] for models in (ours, others) for i in range(2)]
        assert len({array.tobytes() for array in several}) == 4


def by_kind(kind, tmp_path):
    if kind == "numbers":
        return {"data": (X[:60], NUMBERS[:60], X[60:], NUMBERS[60:]), "model": perceptron}
    if kind == "masks":
        images, masks = (np.concatenate(both) for both in zip(circles(0), circles(1), strict=True))
        order = np.random.default_rng(0).permutation(24)
        images, masks = images[order], masks[order]
        return {
            "data": (images[:16], masks[:16], images[16:], masks[16:]),
            "model": convolutions,
            "num_clients": 2,
            "batch_size": 4,
        }
    (tmp_path / "speeches.txt").write_text(SPEECHES)
    text = {"dataset": f"text:{tmp_path / 'speeches.txt'}", "partition": "natural:speaker"}
    return text | {"model": "char-lstm-small"}


NOT_CLASSES = {("text", "fedap"): "^model: 'char-lstm-small' is not allowed; expected one with BatchNorm"} | {
    (kind, "fedpac"): f"^objective: 'fedpac' is not allowed; expected .* it needs classes, .* has {what}$"
    for kind, what in {"text": "characters", "numbers": "numbers", "masks": "masks"}.items()
}


@pytest.mark.parametrize(("strategy", "kind"), diagonal_quick([*SETTINGS], ["text", "numbers", "masks"]))
def test_what_is_not_classes_is_learnt_or_refused_in_a_line(run, tmp_path, kind, strategy):
    keys = by_kind(kind, tmp_path)
    if (kind, strategy) in NOT_CLASSES:
        with pytest.raises(UserError, match=NOT_CLASSES[kind, strategy]) as caught:
            run(strategy, **keys)
        assert "\n" not in str(caught.value)
        return
    result = run(strategy, **keys | {"client_lr": 0.02})
    assert result.summary["failures"] == 0
    losses = result.history["client-mean-loss"]
    assert losses.iloc[-1] < losses.iloc[0]
    for client in map(int, result.summary["clients"]):
        assert all(np.isfinite(entry).all() for entry in model_of(result, client).values())


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["cfl", "fedap", "fedamp"])
def test_one_client_alone_has_the_model_of_fedavg(run, strategy):
    """A mean, or a mixture, of one model is that model."""
    one = {"num_clients": 1}
    result = run(strategy, **one)
    other = run("fedavg", "shared", **one, **{k: v for k, v in SETTINGS[strategy].items() if "_" not in k})
    expected = load_file(other.folder / "model.safetensors")
    for name, entry in model_of(result, 0).items():
        np.testing.assert_allclose(entry, expected[name], atol=1e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", SETTINGS)
def test_tied_weights_stay_tied_in_every_model(run, strategy):
    result = run(strategy, model=tied)
    for client in range(3):
        model = model_of(result, client)
        np.testing.assert_array_equal(model["first.weight"], model["second.weight"])
    models = [load_file(path) for path in (result.folder / "models").glob("*.safetensors")]
    assert models
    for entries in models:
        kept = [entries[name] for name in ("first.weight", "second.weight") if name in entries]
        assert kept
        np.testing.assert_array_equal(kept[0], kept[-1])


@pytest.mark.slow
@pytest.mark.parametrize("strategy", some_quick(SETTINGS, {0, 3}))
def test_a_frozen_layer_is_one_for_all(run, strategy):
    result = run(strategy, freeze="0")
    still = run("fedavg", "still", freeze="0", client_lr=1e-30, rounds=1).model().state_dict()
    models = [model_of(result, client) for client in range(3)]
    for model in models:
        np.testing.assert_array_equal(model["0.weight"], still["0.weight"].numpy())
        assert np.abs(model["3.weight"] - still["3.weight"].numpy()).max() > 0


LOCAL = {"fedbn": ("1.weight", "1.running_mean"), "silobn": ("1.running_mean",)}


@pytest.mark.parametrize(("client", "strategy"), diagonal_quick([*LOCAL], ["ifca", "cfl", "fedamp"]))
def test_what_stays_at_home_is_no_part_of_the_models(run, strategy, client):
    result = run(strategy, client=client)
    for path in (result.folder / "models").glob("*.safetensors"):
        assert not set(LOCAL[client]) & load_file(path).keys(), path.name
    models = [model_of(result, one) for one in range(3)]
    for name in LOCAL[client]:
        assert len({model[name].tobytes() for model in models}) == 3


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [*SETTINGS])
def test_the_best_rounds_models_are_those_of_a_run_that_ends_there(run, strategy):
    keys = {"val_fraction": 0.3, "client_lr": 0.3, "rounds": 5, "seed": 2}
    best = run(strategy, "best", best="validation", **keys)
    there = best.summary["best-round"]
    ended = run(strategy, "ended", **keys | {"rounds": there})
    for client in range(3):
        model, other = model_of(best, client), model_of(ended, client)
        for name, entry in model.items():
            np.testing.assert_array_equal(entry, other[name], err_msg=f"round {there}: {name}")
