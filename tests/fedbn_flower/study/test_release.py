"""What may be published of a private run: the folder that ``fedbn-sim release`` writes, and all that
it leaves out.
"""

from math import sqrt

import pytest
from scipy.stats import norm

from fedbn_flower.cli import main
from fedbn_flower.privacy.accounts import Plan, epsilon
from fedbn_flower.privacy.in_words import FILES_OUTSIDE
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation
from fedbn_flower.study.release import attack_success
from tests.quick import some_quick

from ..results.written import summary_of, write_run

DP = {"dp": "client", "dp_noise": 2.0, "dp_delta": 1e-3, "num_clients": 8, "partition": "iid"}
PUBLIC = {"model.safetensors", "privacy.jsonl"}


def test_the_success_of_attacks_on_a_gaussian_is_that_of_its_test():
    """By Neyman and Pearson: at the rate a, Phi(Phi^-1(a) + mu) with mu = sqrt(k) / z. The bound is a
    little more.
    """
    for rounds, noise in ((1, 1.0), (9, 2.0)):
        plan = Plan("all", 1.0, 10, rounds, 1e-5)

        def epsilon_at(delta, plan=plan, noise=noise):
            return epsilon(noise, Plan("all", 1.0, 10, plan.rounds, delta))

        for rate in (0.001, 0.01):
            exact = norm.cdf(norm.ppf(rate) + sqrt(rounds) / noise)
            assert exact <= attack_success(rate, epsilon_at) <= 1.25 * exact


def test_an_epsilon_of_nothing_leaves_guessing_and_an_endless_one_all():
    assert attack_success(0.01, lambda delta: 0.0) == pytest.approx(0.01)
    assert attack_success(0.01, lambda delta: 1e9) == 1


@pytest.fixture(scope="module")
def private(tmp_path_factory, cache_dir, pictures_never_drawn, draws_always_few):
    from fedbn_flower.config.making import run_config

    folder = tmp_path_factory.mktemp("private") / "run"
    given = {**DP, "rounds": 2, "local_epochs": 1, "batch_size": 128, "backend": "inline", "metrics": "f1"}
    keys = {name.replace("_", "-"): value for name, value in given.items()} | {"cache-dir": str(cache_dir)}
    simulate(Federation(run_config(keys)), folder, None)
    return folder


def test_a_release_has_a_model_a_ledger_and_a_card(private, tmp_path, capsys):
    to = tmp_path / "public"
    assert main(["release", str(private), "--to", str(to)]) == 0
    assert capsys.readouterr().out == f"{to / 'README.md'}\n"
    assert {path.name for path in to.iterdir()} == {*PUBLIC, "README.md"}
    assert all((to / name).read_bytes() == (private / name).read_bytes() for name in PUBLIC)
    card = (to / "README.md").read_text()
    value = epsilon(2.0, Plan("poisson", 1.0, 8, 2, 1e-3))
    assert f"epsilon {value:.4g} at delta 0.001" in card
    assert "**Who is protected:** each client with all of its data." in card
    assert "**From whom:** everybody but the server" in card
    assert "The server is honest" in card
    assert "dp-accounting 0.6" in card
    exact = [100 * norm.cdf(norm.ppf(rate) + sqrt(2) / 2) for rate in (0.001, 0.01)]
    found = [
        float(line.split("|")[3].strip(" %"))
        for line in card.splitlines()
        if line.startswith(("| 0.1 %", "| 1 %"))
    ]
    assert all(1 <= given / best < 1.25 for given, best in zip(found, exact, strict=True))


@pytest.mark.parametrize(
    ("keys", "who"),
    some_quick(
        [
            ({"dp": "local", "weighting": "uniform"}, "everybody, the server too"),
            ({"dp": "example", "client": "shared", "model": "linear"}, "each single example of a client"),
        ],
        {0},
    ),
)
def test_the_other_notions(configured, tmp_path, pictures_not_drawn, keys, who):
    simulate(Federation(configured(**{**DP, **keys, "rounds": 1, "dp_seed": 3})), tmp_path / "run", None)
    assert main(["release", str(tmp_path / "run"), "--to", str(tmp_path / "to")]) == 0
    card = (tmp_path / "to" / "README.md").read_text()
    assert who in card
    assert "**This epsilon is simulated: " in card
    assert "protects nobody" in card


def test_every_other_file_is_said_to_be_outside(private):
    files = {path.name for path in private.iterdir() if path.is_file() and not path.name.startswith(".")}
    assert files - PUBLIC - {"checkpoint"}
    assert [name for name in sorted(files - PUBLIC) if name not in FILES_OUTSIDE] == []
    assert "what the run says that it learns" in FILES_OUTSIDE


def test_what_is_no_private_run_is_refused_in_a_line(private, tmp_path, refused):
    write_run(tmp_path / "plain", summary_of([0.5]))
    full = tmp_path / "full"
    full.mkdir()
    (full / "a").touch()
    line = "expected the folder of a run with dp: this one is not private"
    assert line in refused("release", tmp_path / "plain", "--to", tmp_path / "to")
    assert not (tmp_path / "to").exists()
    assert "expected a new or empty folder" in refused("release", private, "--to", full)
    assert "--to" in refused("release", private)
