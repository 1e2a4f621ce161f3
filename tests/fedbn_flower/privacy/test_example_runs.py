"""Whole runs with example-level privacy: what is accounted, written, refused and repeated."""

from math import inf

import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.core.ground.columns import PRIVACY
from fedbn_flower.job.tasks import task_of
from fedbn_flower.privacy import accounts, keys, ledger
from fedbn_flower.privacy.example_privacy import plans_of, terms_of
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation

from .test_runs import Stops, charges, model, resume, rows, simulated

DP = {"dp": "example", "dp_noise": 1.0, "dp_delta": 1e-3, "dp_seed": 5, "client": "shared", "model": "linear"}
SMALL = {"num_clients": 3, "partition": "iid", "batch_size": 240, "local_epochs": 1}


def small(configured, **values):
    return configured(**{**SMALL, **DP, **values})


def test_epsilon_is_that_of_the_client_with_the_greatest(configured):
    """Clients with 20 and 50 examples, batches of 8: 3 and 7 steps of probabilities 8/20 and 8/50."""
    config = small(configured, rounds=4, local_epochs=2, batch_size=8)
    terms = terms_of(config, frozenset({20, 50}))
    by_hand = [
        max(
            accounts.epsilon(1.0, accounts.Plan("poisson", 8 / 20, 20, 2 * 3 * t, 1e-3)),
            accounts.epsilon(1.0, accounts.Plan("poisson", 8 / 50, 50, 2 * 7 * t, 1e-3)),
        )
        for t in (1, 4)
    ]
    assert [terms.epsilon(1), terms.epsilon(4)] == by_hand


def test_the_noise_is_enough_for_the_client_that_needs_most(configured):
    """Sizes 32 and 40 in batches of 32: 4 steps with all, or 8 with probability 4/5, which cost more.

    Noise for the first alone would give 10.54.
    """
    config = small(configured, dp_noise=0, dp_epsilon=8, rounds=4, batch_size=32)
    terms = terms_of(config, frozenset({32, 40}))
    plans = [accounts.Plan("poisson", 1.0, 32, 4, 1e-3), accounts.Plan("poisson", 0.8, 40, 8, 1e-3)]
    assert list(terms.plans) == plans
    assert terms.noise == max(accounts.noise_for(8, plan) for plan in plans)
    assert terms.epsilon(4) == pytest.approx(7.99, abs=0.01)
    assert terms.epsilon(4) <= 8
    first = accounts.noise_for(8, plans[0])
    assert accounts.epsilon(first, plans[1]) == pytest.approx(10.54, abs=0.01)


def test_clients_that_cannot_have_the_greatest_epsilon_are_left_out(configured):
    """As many steps with a smaller probability; one client has fewer examples than a batch."""
    config = small(configured, rounds=1, batch_size=8)
    plans = plans_of(config, frozenset({0, 5, 20, 22, 24, 25, 26}))
    assert [(p.population, p.probability, p.rounds) for p in plans] == [
        (5, 1.0, 1), (20, 8 / 20, 3), (26, 8 / 26, 4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("share", "noise", "steps", "delta", "published"),
    [
        (256 / 60000, 1.12, 60 * 60000 // 256, 1e-5, 2.310),
        (256 / 60000, 0.6, 30 * 60000 // 256, 1e-5, 7.690),
        (0.01, 4.0, 10_000, 1e-5, 0.947),
    ],
)
def test_epsilons_of_dp_sgd(share, noise, steps, delta, published):
    plan = accounts.Plan("poisson", share, 60000, steps, delta)
    assert accounts.epsilon(noise, plan) == pytest.approx(published, rel=0.01)


def test_what_a_client_does_is_what_is_accounted(configured):
    config = small(configured, partition="dirichlet:0.5")
    inputs = Federation(config).inputs
    (accounted,) = terms_of(config, frozenset(map(int, inputs.partitions.train.sizes))).plans[-1:]
    tasks = [task_of(inputs, partition_id) for partition_id in range(3)]
    task = next(one for one in tasks if len(one.train) == accounted.population)
    steps = config.rounds * task.training.steps(task.train)
    assert (accounted.rounds, accounted.probability) == (steps, min(1, 240 / len(task.train)))
    mechanism = task.private(1)
    assert (mechanism.clip, mechanism.noise) == (1.0, 1.0)


def test_a_run_with_a_budget(configured, tmp_path):
    summary = simulated(small(configured, dp_noise=0, dp_epsilon=8, rounds=3), tmp_path / "run")
    found, plan = summary["privacy"], accounts.Plan("poisson", 240 / 479, 479, 6, 1e-3)
    assert found["noise"] == accounts.noise_for(8, plan)
    assert 7.9 < found["epsilon"] <= 8 == found["planned-epsilon"]
    assert {k: found[k] for k in ("notion", "adjacency", "sampling", "claim", "published")} == {
        "notion": "example, at each client",
        "adjacency": "example-replaced-by-nothing",
        "sampling": "poisson",
        "claim": "simulated",
        "published": 3,
    }
    assert found["accounted"] == [{"examples": 479, "probability": 240 / 479, "steps": 6}]
    written = [{name: float(row[name]) for name in PRIVACY} for row in rows(tmp_path / "run")]
    by_round = [accounts.epsilon(found["noise"], plan, 2 * t) for t in (1, 2, 3)]
    assert [row["epsilon"] for row in written] == by_round
    assert {(row["noise-std"], row["clip-norm"]) for row in written} == {(found["noise"], 1.0)}


def test_with_a_secret_key_noise_is_new_each_time_and_kept_nowhere(configured, tmp_path):
    config = small(configured, dp_seed=-1)
    summaries = [simulated(config, tmp_path / name) for name in "ab"]
    assert model(tmp_path / "a") != model(tmp_path / "b")
    assert summaries[0]["privacy"]["claim"] == "guarantee"
    assert not list(tmp_path.rglob(keys.NAME))
    task = task_of(Federation(config).inputs, 0)
    first, again = (task.private(1).numbers.uniform(3) for _ in range(2))
    assert (first != again).all()


def test_with_a_seed_each_client_and_round_has_numbers_of_its_own(configured):
    inputs = Federation(small(configured)).inputs
    drawn = [
        task_of(inputs, client).private(server_round).numbers.uniform(1)[0]
        for client, server_round in ((0, 1), (1, 1), (0, 2), (0, 1))
    ]
    assert len(set(drawn)) == 3
    assert drawn[0] == drawn[3]


def test_a_resumed_run_has_the_bits_and_the_ledger_of_one_that_never_stopped(configured, tmp_path):
    config = small(configured, rounds=4, checkpoint_every=2)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    simulated(config, whole)
    with pytest.raises(KeyboardInterrupt):
        simulate(Federation(config), stopped, None, [Stops(3)])
    simulated(resume(config, stopped), stopped)
    assert model(stopped) == model(whole)
    assert (stopped / ledger.NAME).read_text() == (whole / ledger.NAME).read_text()


def test_with_a_secret_key_a_repeated_round_is_charged_again_and_a_spent_budget_ends_the_run(
    configured, tmp_path, caplog
):
    config = small(configured, dp_seed=-1, dp_noise=0, dp_epsilon=8, rounds=4, checkpoint_every=2)
    with pytest.raises(KeyboardInterrupt):
        simulate(Federation(config), tmp_path / "run", None, [Stops(3)])
    with caplog.at_level("WARNING", "flwr"):
        summary = simulated(resume(config, tmp_path / "run"), tmp_path / "run")
    found = charges(tmp_path / "run")
    assert [(c["round"], c["attempt"]) for c in found] == [(1, 1), (2, 1), (3, 1), (3, 2)]
    assert "privacy: budget spent at round 3 of 4" in caplog.text
    assert (summary["rounds"], summary["stopped"]) == (3, "budget")
    assert 7.9 < summary["privacy"]["epsilon"] <= 8


def test_more_rounds_than_the_noise_was_found_for_are_refused(configured, tmp_path):
    config = small(configured, dp_noise=0, dp_epsilon=8, rounds=2)
    simulated(config, tmp_path / "run")
    wanted = r"^rounds: 9 is not allowed; expected 2, for which the noise .* was found$"
    with pytest.raises(UserError, match=wanted):
        simulated(resume(config, tmp_path / "run", rounds=9), tmp_path / "run")


def test_a_round_is_charged_before_anybody_is_asked(configured, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "fedbn_flower.server.federation.Exchange._carried",
        lambda self, phase, messages: asked.append(len(charges(tmp_path / "run"))) or [],
    )
    with pytest.raises(Exception, match=r".*"):
        simulated(small(configured), tmp_path / "run")
    assert asked[0] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "client"),
    [
        ("fedprox", "fedper"), ("feddyn", "shared"), ("scaffold", "shared"), ("fedntd", "fedper+silobn"),
        ("moon", "shared"),
    ],
)  # fmt: skip
def test_every_objective_and_client_that_can(configured, tmp_path, objective, client):
    strategy = objective if objective in ("feddyn", "scaffold") else "fedavg"
    keys = {"objective": objective, "strategy": strategy, "client": client, "model": "2nn"}
    config = small(configured, **keys, rounds=2, num_clients=2, batch_size=120)
    assert simulated(config, tmp_path / "run")["privacy"]["epsilon"] < inf


EXPECTED = "with dp 'example'"
REFUSED = {
    f"dp-epsilon: missing; expected a number > 0, or a dp-noise > 0, {EXPECTED}": {"dp_noise": 0},
    f"dp-noise: 1.0 is not allowed; expected 0, since dp-epsilon is given, {EXPECTED}": {"dp_epsilon": 3},
    f"dp-delta: missing; expected a number from 1e-15 on, below 1/examples, {EXPECTED}": {
        "dp_delta": 0
    },
    f"dp-clip: 'adaptive' is not allowed; expected a number > 0 {EXPECTED}": {"dp_clip": "adaptive"},
    f"dp-sampling: 'all' is not allowed; expected 'poisson', since not clients are protected, {EXPECTED}": {
        "dp_sampling": "all"
    },
    f"dp-simulate-cohort: 50 is not allowed; expected 0, since not clients are protected, {EXPECTED}": {
        "dp_simulate_cohort": 50
    },
    f"precision: 'fp16' is not allowed; expected 'fp32' {EXPECTED}": {"precision": "fp16"},
    f"normalize: True is not allowed; expected false, since its means are of all training data, {EXPECTED}": {
        "normalize": True
    },
    f"patience: 2 is not allowed; expected 0, since clients' metrics would decide what is published, "
    f"{EXPECTED}": {"patience": 2, "val_fraction": 0.2},
    f"stop-at-target: True is not allowed; expected false, since clients' metrics would decide what is "
    f"published, {EXPECTED}": {"stop_at_target": True, "target": "accuracy=0.9"},
    "model: 'mlp-bn' is not allowed; expected one with GroupNorm, such as 'simple-cnn-gn' or by norm "
    f"'group:G', {EXPECTED}: "
    "BatchNorm mixes examples, as in the "
    "layer '2'": {"model": "mlp-bn", "client": "fedbn"},
    **{
        f"client: {name!r} is not allowed; expected one of fedbn, fedper, shared, silobn, or some of these "
        f"{EXPECTED}": {"client": name}
        for name in (
            *("fedrep", "fedbabu", "lg-fedavg", "ditto", "alone"),
            *("apfl", "pfedme", "per-fedavg", "fedala", "fedrod", "knn-per"),
        )
    },
    **{
        f"objective: {key!r} is not allowed; expected another one {EXPECTED}: objective {name} does not set "
        "`example_wise`": {"objective": key, "strategy": rule}
        for key, name, rule in (
            ("fedsam", "FedSAM", "fedavg"), ("fedrs", "FedRS", "fedavg"),
            ("fedlc", "FedLC", "fedavg"), ("feddecorr", "FedDecorr", "fedavg"),
            ("fedspeed", "FedSpeed", "fedavg"), ("fedsmoo", "FedSMOO", "fedsmoo"),
            ("fedproto", "FedProto", "fedproto"), ("fedsat", "FedSat", "fedsat"),
            ("scaffold-momentum", "ScaffoldMomentum", "scaffold-momentum"),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_refused_in_one_line(configured, line):
    with pytest.raises(UserError) as error:
        Federation(small(configured, **{"model": "2nn", **REFUSED[line]}))
    assert str(error.value) == line


def test_a_loss_of_class_counts_is_refused(configured):
    with pytest.raises(UserError, match=r"^loss: .* is not allowed; expected another one with dp 'example'"):
        Federation(small(configured, loss="class-balanced"))


def test_a_delta_that_is_too_great_and_a_public_key_are_warned_of(configured):
    lines = list(Federation(small(configured, dp_delta=0.1)).privacy.notices())
    assert [line.partition(":")[0] for line in lines] == ["dp-delta", "dp-seed"]
    assert not list(Federation(small(configured, dp_seed=-1)).privacy.notices())
