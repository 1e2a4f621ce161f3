"""When a run's clients train in lockstep: found before it starts, said in one line."""

import logging

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn
from torch.utils.data import TensorDataset

from fedbn_flower import annexes
from fedbn_flower.core.process_cache import clear_process_caches
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.job.tasks import task_of
from fedbn_flower.lockstep import cohorts
from fedbn_flower.models import MODELS
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.cohorts import cohort_size
from strategies.aggregation.fold import GROUP


def frozen_first_layer(spec):
    model = MODELS["mlp-bn"](spec)
    model[1].weight.requires_grad_(False)
    return model


def tokens(spec):
    """Linear on (N, T, F): it passes for known until it is tried."""
    return nn.Sequential(
        nn.Flatten(2), nn.Linear(spec.height * spec.width, 4), nn.Flatten(), nn.Linear(4, spec.classes)
    )


MODEL_REASONS = {
    "mlp-bn": "in lockstep",
    "cnn": "convolutions gain nothing on a CPU",
    "frozen": "in lockstep",
    "tokens": "the trial raised RuntimeError",
}


@pytest.fixture
def many(configured, monkeypatch):
    monkeypatch.setitem(MODELS, "frozen", frozen_first_layer)
    monkeypatch.setitem(MODELS, "tokens", tokens)
    monkeypatch.setitem(MODELS, "hasty", hasty)
    clear_process_caches()

    def make(**values):
        return configured(
            **{"client": "shared", "partition": "iid", "num_clients": 2 * GROUP, "rounds": 1} | values
        )

    return make


@pytest.mark.parametrize("model", MODEL_REASONS)
def test_one_line_says_how_clients_train(many, caplog, model):
    caplog.set_level(logging.INFO, "flwr.fedbn")
    config = many(model=model, seed=7)
    assert cohort_size(inputs_of(config)) == (GROUP if MODEL_REASONS[model] == "in lockstep" else 1)
    (line,) = [r.getMessage() for r in caplog.records]
    assert MODEL_REASONS[model] in line


def test_always_is_of_all_networks_and_few_clients_too(many, caplog, tmp_path):
    """Also of one with a hook that stores pictures channels last."""
    caplog.set_level(logging.INFO, "flwr.fedbn")
    found = []
    for fast in ("always", "off"):
        config = many(model="cnn", fast=fast, num_clients=3, fraction_evaluate=0.0)
        simulate(Federation(config), tmp_path / fast, None)
        found.append(load_file(tmp_path / fast / "model.safetensors"))
    assert "clients train 8 at a time: in lockstep" in caplog.messages
    for name, entry in found[0].items():
        np.testing.assert_allclose(entry, found[1][name], atol=1e-5)


class Hasty(nn.Module):
    """Says that it treats each example alone, and halves small batches."""

    lockstep_safe = True

    def forward(self, x):
        return x / 2 if len(x) < 30 else x


def hasty(spec):
    return nn.Sequential(nn.Flatten(), Hasty(), nn.Linear(spec.size, spec.outputs))


@pytest.mark.slow
def test_a_model_that_looks_at_its_batch_trains_one_by_one_and_says_so(many, caplog, tmp_path):
    """Clients of about 90 digits have batches of 32, 32 and some 26: other functions alone than stacked."""
    found = {}
    for fast in ("auto", "off"):
        config = many(model="hasty", fast=fast, batch_size=32, fraction_evaluate=0.0)
        simulate(Federation(config), tmp_path / fast, None)
        found[fast] = load_file(tmp_path / fast / "model.safetensors")
    assert all(np.array_equal(entry, found["off"][name]) for name, entry in found["auto"].items())
    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    (line,) = [line for line in warned if "one by one" in line]
    assert line.startswith("clients train one by one: a class says that it treats each example alone, but ")


def test_few_clients_and_what_is_turned_off_train_one_by_one(many, caplog):
    """A client's work, about 96 digits by 9,866 weights, is little once, and not 20 times."""
    caplog.set_level(logging.INFO, "flwr.fedbn")
    few = 2 * GROUP - 1
    assert cohort_size(inputs_of(many(num_clients=few, local_epochs=20))) == 1
    assert cohort_size(inputs_of(many(num_clients=few))) == GROUP
    assert cohort_size(inputs_of(many(num_clients=few, fraction_train=0.5))) == 1
    off = inputs_of(many(fast="off"))
    assert cohort_size(off) == 1
    assert [task_of(one, 0).training.replays for one in (off, inputs_of(many()))] == [False, True]
    assert [r.getMessage() for r in caplog.records] == [
        "clients train one by one: fewer than 16 a round",
        "clients train 8 at a time: in lockstep",
        "clients train one by one: fewer than 8 a round",
        "clients train one by one: fast is off",
    ]


def test_without_what_trains_several_at_once_they_train_one_by_one(many, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "flwr.fedbn")
    monkeypatch.setattr(annexes, "is_present", lambda name: False)
    assert cohort_size(inputs_of(many())) == 1
    assert caplog.messages == ["clients train one by one: nothing here trains several at once"]


def test_many_examples_are_not_held_at_once(many, caplog, monkeypatch):
    """Eight clients of 90 digits at most: 8 x 90 x (64 pixels and a label)."""
    caplog.set_level(logging.INFO, "flwr.fedbn")
    sizes = []
    for held in (46_800, 46_799):
        monkeypatch.setattr(cohorts, "MAX_VALUES", held)
        clear_process_caches()
        sizes.append(cohort_size(inputs_of(many())))
    assert sizes == [GROUP, 1]
    assert "too many examples to be held at once" in caplog.messages[1]


def examples(count, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(count, 6)).astype(np.float32), np.arange(count) % 2
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(y))


@pytest.mark.slow
def test_a_client_that_fails_costs_its_cohort_nothing(run):
    """Two of 16 clients have one row, which BatchNorm cannot train on; stragglers are still at it when the
    others are done."""
    data = [examples(1 if i in {0, 9} else 12, seed=i) for i in range(16)]
    failures = {}
    for fast in ("auto", "off"):
        result = run(
            data=data, test=examples(20, seed=16), model="mlp-bn", client="shared", stragglers=1.0,
            batch_size=0, local_epochs=10, rounds=3, fast=fast,
        )  # fmt: skip
        rows = (result.folder / "failures.csv").read_text().splitlines()[1:]
        failures[fast] = [line.split(",", 3) for line in rows]
    assert failures["auto"] == failures["off"]
    assert [(number, partition) for number, _, partition, _ in failures["auto"]] == [
        (str(number), partition) for number in (1, 2, 3) for partition in ("0", "9")
    ]
