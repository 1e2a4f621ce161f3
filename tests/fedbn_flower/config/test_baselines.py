"""What a federation is compared with: each client alone, and all of the data in one place."""

import copy
import re

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from fedbn_flower.cli.parser import parse
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.job.participation import held_out_clients
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.server.federation import Federation

ROUNDS, EPOCHS, RATE = 2, 2, 0.3
JOB = {
    "partition": "dirichlet:1", "num_clients": 3, "model": "mlp-bn", "rounds": ROUNDS, "batch_size": 0,
    "local_epochs": EPOCHS, "client_lr": RATE, "client_lr_schedule": "exponential:0.5",
    "client_momentum": 0.9, "eval_data": "local", "val_fraction": 0.1,
}  # fmt: skip


def digits():
    """Pixels in 0..1 and labels: of the training set, of the test set."""
    data = load_digits()
    images = torch.tensor(np.rint(data.images * (255 / 16)) / 255, dtype=torch.float32)[:, None].numpy()
    split = train_test_split(images, data.target, test_size=0.2, random_state=0, stratify=data.target)
    train_x, test_x, train_y, test_y = map(torch.from_numpy, split)
    return (train_x, train_y), (test_x, test_y)


def trained(config, rows):
    """The run's initial model after all epochs on these rows, every round with an optimiser of its own."""
    (x, y), _ = digits()
    model = copy.deepcopy(inputs_of(config).model()[0])
    model.load_state_dict({n: torch.tensor(e) for n, e in inputs_of(config).model()[1].items()})
    model.train()
    for done in range(ROUNDS):
        optimizer = torch.optim.SGD(model.parameters(), RATE * 0.5**done, momentum=0.9)
        for _ in range(EPOCHS):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model.eval()


def accuracy(model, rows):
    _, (x, y) = digits()
    with torch.no_grad():
        return (model(x[rows]).argmax(1) == y[rows]).double().mean().item()


def agree(model, entries):
    for name, entry in model.state_dict().items():
        torch.testing.assert_close(entries[name], entry, rtol=1e-3, atol=1e-4)


def test_alone_is_a_loop_over_the_clients_own_rows(run, configured):
    result = run(**JOB, reference="alone")
    config = configured(**JOB)
    shares = inputs_of(config).partitions
    for i in range(3):
        model = trained(config, shares.train[i])
        agree(model, result.model(client=i).state_dict())
        assert result.summary["clients"][str(i)]["accuracy"] == accuracy(model, shares.test[i])
        assert result.summary["clients"][str(i)]["num-examples"] == len(shares.train[i])
    assert result.summary["global"] is None


@pytest.mark.slow
def test_pooled_is_a_loop_over_the_rows_of_all(run, configured):
    result = run(**JOB, reference="pooled")
    config = configured(**JOB)
    shares = inputs_of(config).partitions
    model = trained(config, np.concatenate(shares.train))
    agree(model, result.model().state_dict())
    assert "test-accuracy" in result.clients.columns
    for i in range(3):
        assert result.summary["clients"][str(i)]["accuracy"] == accuracy(model, shares.test[i])
    assert result.summary["global"]["accuracy"] == accuracy(model, np.arange(360))
    assert set(result.clients.query("phase == 'train'")["partition"]) == {0}
    assert set(result.clients.query("phase == 'evaluate'")["partition"]) == {0, 1, 2}


class Deaf(InlineGrid):
    """Some clients hear nothing of training; keeps what the others are sent and answer."""

    def __init__(self, config, without=()):
        super().__init__(config.num_clients, config.to_user_config())
        self.without = set(without)
        self.heard = []

    def work(self, messages, timeout):
        nodes = sorted(self.get_node_ids())
        kept = [m for m in messages if nodes.index(m.metadata.dst_node_id) not in self.without]
        self.heard += kept
        for reply in super().work(kept, timeout):
            self.heard.append(reply)
            yield reply


@pytest.mark.slow
def test_who_is_alone_exchanges_nothing_and_is_not_affected_by_others(configured):
    config = configured(**JOB, reference="alone")
    both = {}
    for without in ((), (0, 2)):
        grid = Deaf(config, without)
        Federation(config).run(grid, [])
        both[without] = grid.client_memory(1)["local"]
        assert all(not len(r) for m in grid.heard for r in m.content.array_records.values())
    assert both[()].keys() == both[(0, 2)].keys()
    for name, entry in both[()].items():
        np.testing.assert_array_equal(entry, both[(0, 2)][name])


@pytest.mark.slow
def test_there_is_nothing_of_who_is_alone_for_a_new_client(run):
    job = JOB | {"rounds": 1}
    assert run(**job, reference="alone", holdout_clients=1).summary["new-clients"] is None
    pooled = run(**job, reference="pooled", holdout_clients=1, run_dir="pooled").summary
    assert len(pooled["new-clients"]["clients"]) == 1
    assert len(pooled["clients"]) == 2


@pytest.mark.parametrize("reference", ["alone", "pooled"])
def test_whatever_it_is_named_with_it_is_one_configuration(configured, reference):
    plain = configured(reference=reference, seed=3)
    named = configured(
        reference=reference, seed=3, strategy="fedadam", server_lr=0.3, client="fedbn", objective="fedprox",
        mu=0.1, fraction_train=0.5, stragglers=0.5, dropout=0.1, fine_tune=3, weighting="uniform",
    )  # fmt: skip
    assert named == plain
    assert named != configured(reference=reference, seed=3, client_lr=0.1)
    again = {key.replace("-", "_"): value for key, value in named.to_user_config().items()}
    assert configured(**again) == named


def test_its_loss_keeps_its_settings(configured):
    config = configured(reference="alone", loss="focal", focal_gamma=3.0)
    assert config.to_user_config()["focal-gamma"] == 3.0


def test_a_grid_has_each_reference_once():
    pytest.importorskip("fedbn_flower.sweeps")
    configs = parse(["--strategy", "fedavg,fedadam", "--reference", "none,alone,pooled", "--seed", "0,1"])
    found = [(c.strategy, c.reference, c.seed) for c in configs]
    assert len(found) == len(set(found)) == 2 * (2 + 2)
    assert {(s, r) for s, r, _ in found} == {
        ("fedavg", "none"), ("fedadam", "none"), ("fedavg", "alone"), ("fedavg", "pooled"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("values", "output"),
    [
        ({"reference": "pooled", "strategy": "fedavg", "tau": 1}, "tau: 1 is not used by strategy 'fedavg'"),
        ({"reference": "pooled", "feature_shift": "rotated"}, "feature-shift: 'rotated' is not allowed"),
        ({"reference": "mine"}, "reference: 'mine' is not allowed"),
        (
            {"dataset": "shape:1x8x8:10", "model": "mlp-bn", "reference": "pooled"},
            "reference: 'pooled' is not allowed; .*SuperNodes keep their data",
        ),
        ({"final_test": False}, "final-test: False is not allowed; expected true without val-fraction"),
    ],
)
def test_mistakes_are_reported(refusal, values, output):
    assert re.match(output, refusal(**values))


@pytest.mark.slow
def test_without_a_final_test_the_test_set_is_never_used(run):
    result = run(**JOB | {"rounds": 1}, final_test=False)
    assert not [name for name in (*result.clients.columns, *result.history.columns) if "test" in name]


def test_pooled_rows_are_none_of_a_clients_that_is_held_out(configured):
    config = configured(**JOB | {"num_clients": 4}, reference="pooled", holdout_clients=1)
    own = inputs_of(config.model_copy(update={"reference": "none"})).partitions.train
    (new,) = held_out_clients(config.seed, 4, 1)
    pooled = np.sort(np.concatenate([rows for i, rows in enumerate(own) if i != new]))
    for i, rows in enumerate(inputs_of(config).partitions.train):
        np.testing.assert_array_equal(rows, own[new] if i == new else pooled)
