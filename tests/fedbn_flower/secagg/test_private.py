"""Runs with noise in shares: how much there is, who adds it, what leaves a client, and what is said of it."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from fedbn_flower.core.errors import RunFailed, UserError
from fedbn_flower.privacy.floors import Refused
from fedbn_flower.results.report import write_report
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.secagg import private
from fedbn_flower.server.federation import Federation
from fedbn_flower.strategies.messages.npy import viewed

from .grids import Lossy, Rounds

KEYS = {
    "dp": "client", "dp_noise": 1.0, "dp_delta": 1e-3, "dp_clip": 0.5, "secagg": "on", "num_clients": 5,
    "partition": "iid", "rounds": 1, "strategy": "fedavg", "model": "linear", "client": "shared",
}  # fmt: skip


@pytest.fixture
def settings(configured):
    return lambda **values: configured(**{**KEYS, **values})


@pytest.fixture
def run_on(tmp_path):
    """The rounds of a run on a grid, and the bytes of its last model; each run has a ledger of its own."""
    count = iter(range(100))

    def run(config, grid=None):
        federation, rounds = Federation(config), Rounds()
        folder = tmp_path / f"ledger-{next(count)}"
        folder.mkdir()
        assert federation.privacy.begin(folder, 0, False) is None  # the server adds no noise
        arrays = federation.run(grid or Lossy(config), [rounds])
        return rounds.results, {name: array.data for name, array in arrays.items()}

    return run


def entries(arrays):
    return np.concatenate([viewed(arrays[name]).astype(float).ravel() for name in sorted(arrays)])


def test_a_masked_run_has_the_bits_of_a_plain_one_with_the_same_seed(settings, run_on):
    models = [run_on(settings(secagg=mode, dp_seed=3, rounds=2))[1] for mode in ("on", "plain")]
    assert models[0] == models[1] != run_on(settings(dp_seed=4, rounds=2))[1]


@pytest.mark.slow
def test_the_models_noise_has_its_deviation_to_1_percent(settings, run_on):
    """Four runs that differ in nothing but the noise, of 9,610 numbers: known to 0.4 %.

    A third of 5 clients may drop out, whatever secagg-min says, and half of the 4 others are honest: 2 have
    z C.
    """
    models = []
    for seed in range(4):
        config = settings(dp_seed=seed, dp_honest=0.5, secagg_min=3, model="mlp-bn", client="fedbn")
        models.append(entries(run_on(config)[0][0].arrays))
    assert models[0].size > 9000
    found = np.std(models, axis=0, ddof=1)
    expected = 0.5 * math.sqrt(5 / 2) / 5
    assert math.sqrt(np.mean(found**2)) == pytest.approx(expected, rel=0.01)


@pytest.mark.slow
def test_without_a_seed_no_two_runs_have_the_same_noise(settings, run_on):
    assert run_on(settings())[1] != run_on(settings())[1]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", ["on", "plain"])
def test_fewer_clients_than_the_noise_is_divided_among_give_no_result(settings, run_on, mode, caplog):
    """Four of five are wanted; of two that are lost a sum would have too little noise."""
    config = settings(secagg=mode)
    run_on(config, Lossy(config, {"train": (1,)}))
    with pytest.raises(RunFailed, match="never updated"):
        run_on(config, Lossy(config, {"train": (1, 2)}))
    assert "round 1, train: secagg: there is no sum: 3 clients are left, and the noise is that of 4" in (
        caplog.messages
    )


def test_what_leaves_a_client_is_masked_and_nothing_else(settings, run_on):
    grid = Lossy(config := settings(metrics="auroc", thresholds=100, problem="classification"))
    results, _ = run_on(config, grid)
    sent = [reply.content for step, _, _, reply in grid.carried if step == "train"]
    assert len(sent) == 5
    for content in sent:
        assert set(content["metrics"]) <= {"num-examples", "sent-bytes"}
        assert content["metrics"]["num-examples"] == 1
        assert not content["arrays"]
        vector = content["compressed"]["vector"].numpy()
        assert len(np.unique(vector)) > 0.99 * vector.size
    assert not any(results[0].train.metrics.values())
    assert not any(step == "evaluate" for step, *_ in grid.carried)


def test_what_leaves_a_client_without_masks_has_noise_and_no_number_of_examples(settings, run_on):
    """Beside the update each number is what it would be of any client."""
    grid = Lossy(config := settings(secagg="plain", partition="dirichlet:0.3"))
    run_on(config, grid)
    vectors = [reply.content["compressed"]["vector"].numpy() for *_, reply in grid.carried]
    update = 650
    assert len({vector[update:].tobytes() for vector in vectors}) == 1
    assert len({vector[:update].tobytes() for vector in vectors}) == 5


def test_an_update_that_is_not_finite_counts_0(settings, run_on, monkeypatch):
    """That one has diverged would tell of its data."""
    from clients import FedAvgClient

    fit = FedAvgClient.fit

    def diverged(self, parameters, config):
        arrays, *others = fit(self, parameters, config)
        if self.task.seed[-1] == 2:
            arrays = [np.full_like(array, np.nan) for array in arrays]
        return arrays, *others

    monkeypatch.setattr(FedAvgClient, "fit", diverged)
    results, _ = run_on(settings())
    assert not results[0].train.failures
    assert np.isfinite(entries(results[0].arrays)).all()


def test_tied_weights_are_clipped_and_noised_once(settings, run_on):
    results, model = run_on(settings(secagg="plain", model=f"{__name__}:tied", dp_noise=1e-3, dp_clip=1e-3))
    assert model["first.weight"] == model["second.weight"]
    assert np.isfinite(entries(results[0].arrays)).all()


def tied(spec):
    from torch import nn

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            size = math.prod(spec.shape)
            self.first, self.second = nn.Linear(size, size), nn.Linear(size, size)
            self.second.weight = self.first.weight
            self.head = nn.Linear(size, spec.outputs)

        def forward(self, x):
            return self.head(self.second(self.first(x.flatten(1)).relu()).relu())

    return Tied()


@pytest.fixture
def complete(settings, tmp_path):
    def run(**values):
        config = settings(rounds=2, **values)
        simulate(Federation(config), tmp_path / "run", None)
        return tmp_path / "run"

    return run


def test_ledger_columns_summary_report_and_release_agree(complete, tmp_path):
    """Epsilon of two sums of noise z = 1: that of a Gaussian with z / sqrt(2), by its Renyi divergences."""
    folder = complete()
    terms, *charges = map(json.loads, (folder / "privacy.jsonl").read_text().splitlines())
    assert terms == {
        "notion": "client, from the server too", "noise": 1.0, "rounds": 0, "survivors": 4, "honest": 1.0,
    }  # fmt: skip
    assert [charge["clients"] for charge in charges] == [[0, 1, 2, 3, 4]] * 2
    found = json.loads((folder / "summary.json").read_text())["privacy"]
    orders = np.linspace(1.02, 200, 20000)
    by_order = orders + np.log1p(-1 / orders) - np.log(1e-3 * orders) / (orders - 1)
    assert found["epsilon"] == charges[-1]["epsilon"] == pytest.approx(by_order.min(), rel=1e-3)
    assert (found["claim"], found["survivors"], found["honest-survivors"]) == ("guarantee", 4, 4)
    rows = [line.split(",") for line in (folder / "metrics.csv").read_text().splitlines()]
    row = dict(zip(rows[0], rows[-1], strict=True))
    assert float(row["epsilon"]) == found["epsilon"]
    assert float(row["noise-std"]) == pytest.approx(0.5 / 4, rel=1e-4)
    assert float(row["clip-norm"]) == 0.5
    page = write_report(folder).read_text()
    assert "sums of 4 clients or more" in page
    release = pytest.importorskip("fedbn_flower.study.release").release
    card = release(folder, tmp_path / "released").read_text()
    assert "everybody, the server too" in card
    assert "At least 4 of the 4 clients" in card


@pytest.mark.parametrize(
    ("values", "said"),
    [({"dp_seed": 1}, ["nobody is protected"]), ({"secagg": "plain"}, ["'plain' masks nothing"]), ({}, [])],
)
def test_what_is_claimed(settings, tmp_path, values, said):
    privacy = Federation(settings(**values)).privacy
    privacy.begin(tmp_path, 0, False)
    assert privacy.summary()["claim"] == ("simulated" if said else "guarantee")
    told = " ".join(map(str, privacy.notices()))
    assert [words for words in ("nobody is protected", "'plain' masks nothing") if words in told] == said


def test_the_noise_of_an_epsilon_is_that_of_clients_that_train_in_every_round(settings):
    config = settings(dp_noise=0.0, dp_epsilon=3.0, rounds=4)
    privacy = Federation(config).privacy
    assert privacy.epsilon(4) <= 3.0 < privacy.epsilon(4) + 0.01
    assert privacy.noise == private.noise_of(config)


def test_a_sample_costs_each_client_its_own_rounds(settings):
    """Three of six a round, in four rounds: nobody can have been in more than four."""
    config = settings(num_clients=6, fraction_train=0.5, rounds=4, dp_noise=2.0)
    federation = Federation(config)
    assert federation.privacy.shares.survivors == 3
    assert private.survivors_of(3, 3) == 3
    assert private.survivors_of(9, 3) == 6
    assert private.survivors_of(9, 8) == 8


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"dp_sampling": "cyclic"}, "dp-sampling: 'cyclic' is not allowed; .*'all' with secagg"),
        ({"dp_sampling": "fixed"}, "dp-sampling: 'fixed' is not allowed; .*'all' with secagg"),
        ({"dp_sampling": "all", "fraction_train": 0.7}, "fraction-train: 0.7 is not allowed"),
        ({"dp_secure_noise": True}, "dp-secure-noise: True is not allowed; .*clients add the noise"),
        ({"dp_metrics": 1.0}, "dp-metrics: 1.0 is not allowed; .*no metrics leave"),
        ({"dp_simulate_cohort": 50}, "dp-simulate-cohort: 50 is not allowed"),
        ({"eval_model": "local"}, "eval-model: 'local' is not allowed; .*no metrics leave"),
        ({"weighting": "num-examples"}, "weighting: 'num-examples' is not allowed"),
        ({"clip_update_norm": 1.0}, "clip-update-norm: 1.0 is not allowed; .*dp-clip"),
        ({"dp": "local"}, "dp: 'local' is not allowed; .*'none', or 'client'"),
        ({"secagg": "off", "dp_honest": 0.5}, "dp-honest: 0.5 is not allowed; .*secagg"),
        ({"model": "mlp-bn"}, "client: 'shared' is not allowed"),
        ({"dp_honest": 0.0}, "dp-honest"),
        ({"secagg_bits": 16}, "secagg-bits: 16 is not allowed; .*the noise decides"),
        ({"dp_noise": 1e6}, "dp-noise: 1000000.0 is not allowed; .*rounding 650 parameters"),
    ],
)  # fmt: skip
def test_what_it_does_not_go_with_is_one_line(settings, values, line):
    with pytest.raises(UserError, match=line) as refusal:
        Federation(settings(**values))
    assert "\n" not in str(refusal.value)


def test_a_record_beside_the_model_would_have_no_noise(settings):
    with pytest.raises(Refused, match="^privacy: dp 'client' does not protect the record 'gradient'$"):
        private.check_noise(settings(), None, SimpleNamespace(records={"gradient": {}}))
