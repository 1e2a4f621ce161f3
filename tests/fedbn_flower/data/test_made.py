"""Data that are made: synthetic classes, and least squares whose optimum is known."""

import json

import numpy as np
import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.data import Request
from fedbn_flower.data.readers.made import decode_synthetic
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.job.participation import held_out_clients
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.inputs import local_task

CLIENTS, STEPS, RATE = 4, 20, 0.05


# ---- synthetic:ALPHA,BETA ---------------------------------------------------------------------------


def test_synthetic_clients_have_rows_of_their_own(configured):
    config = configured(dataset="synthetic:1,1", num_clients=30)
    dataset, shares = inputs_of(config).dataset, inputs_of(config).partitions
    assert (config.model, config.partition) == ("linear", "natural:client")
    assert dataset.spec.as_dataset() == "shape:60:10"
    sizes = [(len(train), len(test)) for train, test in zip(shares.train, shares.test, strict=True)]
    assert all(train == (train + test) * 9 // 10 and train + test >= 50 for train, test in sizes)
    assert sum(train for train, _ in sizes) == len(dataset.train) == len(dataset.train.columns["x"])
    assert sum(test for _, test in sizes) == len(dataset.test)
    assert max(sizes) > tuple(10 * n for n in min(sizes))  # lognormal(4, 2)


def by_client(decoded):
    ids, columns = decoded.train.groups, decoded.train.columns
    x, y = columns["x"].astype(np.float64), columns["y"]
    return [(x[ids == i], y[ids == i]) for i in np.unique(ids)]


@pytest.fixture(scope="module")
def made():
    return {
        name: by_client(decode_synthetic(Request(f"synthetic:{name}", group_column="client", clients=100)))
        for name in ("0,0", "0,2")
    }


@pytest.mark.slow
def test_what_a_synthetic_client_sees(made):
    """Within a client x_j varies by j^-1.2; a client's centre has a variance of 1 about B_k ~ N(0, beta)."""
    x = np.concatenate([x - x.mean(0) for x, _ in made["0,0"]])
    degrees = len(x) - len(made["0,0"])
    np.testing.assert_allclose((x**2).sum(0) / degrees, np.arange(1, 61) ** -1.2, rtol=0.05)
    for name, beta in (("0,0", 0), ("0,2", 2)):
        centres = np.stack([x.mean(0) for x, _ in made[name]])
        assert centres.var(1, ddof=1).mean() == pytest.approx(1, rel=0.05)
        assert centres.mean(1).std() == pytest.approx(np.sqrt(beta**2 + 1 / 60), rel=0.15)


def test_what_a_synthetic_client_makes_of_it(made):
    """Its classes are those of one linear model, which is another client's no more than by chance."""
    (x, y), *rest = sorted(made["0,0"], key=lambda part: -len(part[0]))
    assert len(x) > 2000
    rows = np.insert(x, 60, 1, axis=1)
    scores = np.linalg.lstsq(rows[::2], np.eye(10)[y[::2]], rcond=None)[0]

    def right(inputs, classes):
        return np.mean((np.insert(inputs, 60, 1, axis=1) @ scores).argmax(1) == classes)

    assert right(x[1::2], y[1::2]) > 0.75
    assert np.mean([right(*part) for part in rest]) < 0.3


def test_the_seed_and_the_number_of_clients_decide(configured):
    first = inputs_of(configured(dataset="synthetic:0.5,0.5", num_clients=3)).dataset
    again = inputs_of(
        configured(dataset="synthetic:0.5,0.5", num_clients=3, partition="iid", rounds=9)
    ).dataset
    np.testing.assert_array_equal(first.train.columns["x"], again.train.columns["x"])
    for values in ({"seed": 1}, {"num_clients": 4}, {"dataset": "synthetic:0.5,1"}):
        other = inputs_of(configured(**{"dataset": "synthetic:0.5,0.5", "num_clients": 3} | values)).dataset
        assert not np.array_equal(first.train.columns["x"][:50], other.train.columns["x"][:50])


# ---- quadratic:DIM ----------------------------------------------------------------------------------


@pytest.fixture
def problem(configured):
    """The curvatures A_i^T A_i / m, (M, 5, 5), and the clients' own optima, (M, 5), from the rows."""
    config = configured(dataset="quadratic:4", num_clients=CLIENTS)
    dataset = inputs_of(config).dataset
    curvatures, optima = [], []
    for rows in inputs_of(config).partitions.train:
        x = np.insert(dataset.train.columns["x"][rows].astype(np.float64), 4, 1, axis=1)
        y = dataset.train.columns["y"][rows, 0]
        assert len(x) == 4 * 5
        curvatures.append(x.T @ x / len(x))
        optima.append(np.linalg.lstsq(x, y, rcond=None)[0])
        np.testing.assert_allclose(x @ optima[-1], y, atol=1e-5)
    return np.array(curvatures), np.array(optima)


def optimum(curvatures, optima):
    return np.linalg.solve(curvatures.sum(0), np.einsum("kij,kj->i", curvatures, optima))


def test_the_optimum_is_where_the_mean_of_the_costs_is_least(configured, problem):
    dataset = inputs_of(configured(dataset="quadratic:4", num_clients=CLIENTS)).dataset
    np.testing.assert_allclose(dataset.problem.optimum.numpy(), optimum(*problem), atol=1e-6)
    assert np.linalg.norm(problem[1] - optimum(*problem), axis=1).min() > 0.5
    for name, column in dataset.train.columns.items():
        np.testing.assert_array_equal(column, dataset.test.columns[name])


@pytest.mark.parametrize("reference", ["none", "pooled"])
def test_the_optimum_is_that_of_the_clients_that_train(configured, problem, reference):
    """Without holding out the curvatures and optima of the rows are the same ones."""
    config = configured(
        dataset="quadratic:4", num_clients=CLIENTS, holdout_clients=2, client="shared", reference=reference
    )
    held_out = held_out_clients(config.seed, CLIENTS, 2)
    trains = [i not in held_out for i in range(CLIENTS)]
    expected = optimum(problem[0][trains], problem[1][trains])
    assert np.linalg.norm(expected - optimum(*problem)) > 0.01
    for found in (inputs_of(config).dataset.problem, local_task(config, 0, {}).problem):
        np.testing.assert_allclose(found.optimum.numpy(), expected, atol=1e-6)


def fixed_point(curvatures, optima):
    """Of FedAvg: K steps of rate r take x to w_i + (I - r H_i)^K (x - w_i), and x is the mean of these."""
    kept = np.array([np.linalg.matrix_power(np.eye(len(h)) - RATE * h, STEPS) for h in curvatures])
    moved = np.eye(kept.shape[1]) - kept
    return np.linalg.solve(moved.sum(0), np.einsum("kij,kj->i", moved, optima))


CASES = [
    ("fedavg", "plain", "num-examples"),
    ("fedavg", "plain", "uniform"),
    ("feddyn", "feddyn", "num-examples"),
    ("scaffold", "scaffold", "num-examples"),
]
LEAST_SQUARES = {"client": "shared", "batch_size": 0, "client_lr": RATE, "fraction_evaluate": 0.0}


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "objective", "weighting"), CASES)
def test_drift_is_what_feddyn_and_scaffold_correct(configured, problem, strategy, objective, weighting):
    """FedAvg stops where its local steps pull it to, which is known beforehand; the others go on."""
    config = configured(
        dataset="quadratic:4", num_clients=CLIENTS, strategy=strategy, objective=objective, rounds=16,
        local_epochs=STEPS, weighting=weighting, settings="alpha=1" if strategy == "feddyn" else "",
        **LEAST_SQUARES,
    )  # fmt: skip
    federation = Federation(config)
    arrays = federation.run(InlineGrid(CLIENTS, config.to_user_config()), [])
    found, _ = federation.evaluation.evaluate(arrays, "test")
    parameters = np.append(arrays["1.weight"].numpy().ravel(), arrays["1.bias"].numpy())
    best = optimum(*problem)
    assert found["distance"] == pytest.approx(np.linalg.norm(parameters - best), abs=1e-6)
    if strategy == "fedavg":
        np.testing.assert_allclose(parameters, fixed_point(*problem), atol=1e-4)
        assert found["distance"] > 0.1
    else:
        assert found["distance"] < 1e-3
    difference = parameters - problem[1]
    costs = 0.5 * np.einsum("ki,kij,kj->k", difference, problem[0], difference)
    assert found["loss"] == pytest.approx(costs.mean(), rel=1e-4)


def test_the_distance_is_in_every_file_of_a_run(configured, tmp_path):
    config = configured(dataset="quadratic:2", num_clients=3, client="shared")
    summary = simulate(Federation(config), tmp_path / "run", None).as_json()
    assert summary["global"].keys() == {"loss", "distance"}
    written = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert written["clients"]["2"]["distance"] == pytest.approx(summary["global"]["distance"])
    header = (tmp_path / "run" / "metrics.csv").read_text().partition("\n")[0].split(",")
    assert {"loss", "distance", "global-distance"} <= set(header)


BAD = [
    ({"dataset": "synthetic:1"}, "dataset: 'synthetic:1' is not allowed; expected synthetic:ALPHA,BETA"),
    ({"dataset": "synthetic:1,-1"}, "expected synthetic:ALPHA,BETA"),
    ({"dataset": "synthetic:1,nan"}, "expected synthetic:ALPHA,BETA"),
    ({"dataset": "quadratic:0"}, "dataset: 'quadratic:0' is not allowed; expected quadratic:DIM, a whole"),
    ({"dataset": "quadratic:1001"}, "from 1 to 1000"),
    ({"dataset": "quadratic:2.5"}, "expected quadratic:DIM"),
    ({"partition": "natural:clients"}, r"did you mean 'natural:client'\?"),
    ({"partition": "shards:2"}, "partition: 'shards:2' is not allowed; expected 'iid' or 'natural:COLUMN'"),
    ({"val_fraction": 0.1}, "val-fraction: 0.1 is not allowed; expected 0 with 'quadratic:3'"),
    ({"model": "mlp-bn"}, "model: 'mlp-bn' is not allowed; expected 'linear', or another with 3 weights"),
    ({"label_column": "y"}, "label-column: 'y' is not allowed; expected 'auto', since"),
    (
        {"softmax_output": True},
        "model: 'linear' is not allowed; expected 'linear', or another with 3 weights",
    ),
]


@pytest.mark.parametrize(("values", "output"), BAD)
def test_a_mistake_is_reported_in_a_line(configured, values, output):
    config = configured(**{"dataset": "quadratic:3", "num_clients": 3} | values)
    with pytest.raises(UserError, match=output) as caught:
        Federation(config)
    assert "\n" not in str(caught.value)
