"""How much a round does, and how that becomes a time; the times themselves are not tested."""

from types import SimpleNamespace

import pytest
import torch

from clients.problems import evaluation
from fedbn_flower import cli
from fedbn_flower.estimate import runs as estimate
from fedbn_flower.estimate.runs import Speed, Work, kind_of, seconds_a_round, speed_of, work_of
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.server.federation import Federation
from fedbn_flower.site import adapter as client_app
from fedbn_flower.site.evaluation_cache import Evaluations

from ..combinations import EACH, title


@pytest.mark.parametrize(
    "keys",
    [
        {"client": "fedbn"},
        {"client": "shared"},
        {"client": "shared", "eval_data": "local"},
        {"client": "shared", "eval_model": "local"},
        {"client": "fedbn", "fine_tune": 3, "batch_size": 0},
        {"client": "fedbn", "val_fraction": 0.2, "fraction_evaluate": 0},
        {"client": "shared", "val_fraction": 0.2, "eval_data": "local"},
    ],
    ids=str,
)
def test_a_rounds_work_is_what_a_round_does(configured, monkeypatch, keys):
    """Counted where it is done: gradients, evaluations, their examples. Round 1 of 2: the last
    would look at the test set, too. The second of two clients that find the same confirms it."""
    config = configured(partition="dirichlet:0.5", num_clients=4, fast="off", rounds=2, **keys)
    federation = Federation(config)
    counts = {"steps": 0, "evaluations": 0, "examples": 0}
    backward, evaluate = torch.autograd.backward, evaluation.evaluate_batches

    def counted_step(loss):
        counts["steps"] += 1
        backward(loss)

    def counted_evaluation(model, examples, *arguments):
        counts["evaluations"] += 1
        counts["examples"] += len(examples)
        return evaluate(model, examples, *arguments)

    class FirstRound(Exception):
        pass

    class Stop:
        def on_answer(self, *_):
            pass

        def on_round(self, _):
            raise FirstRound

    monkeypatch.setattr(torch.autograd, "backward", counted_step)
    monkeypatch.setattr(evaluation, "evaluate_batches", counted_evaluation)
    monkeypatch.setattr(client_app, "_evaluations", Evaluations())  # no client has confirmed it before
    with pytest.raises(FirstRound):
        federation.run(InlineGrid(4, config.to_user_config()), [Stop()])
    work = work_of(federation)
    alike = keys == {"client": "shared"}
    assert work.clients == 4
    assert work.steps == pytest.approx(counts["steps"])
    assert work.evaluations == counts["evaluations"] - alike
    assert work.examples == pytest.approx(counts["examples"] - alike * len(federation.dataset.test))


def test_a_rounds_time_is_the_sum_of_what_it_does():
    assert seconds_a_round(Work(2, 10, 3, 100), Speed(5, 1, 2, 0.5)) == 2 * 5 + 10 + 3 * 2 + 50


def test_a_speed_is_a_line_through_two_points(monkeypatch):
    monkeypatch.setattr(estimate, "_seconds", lambda do, n: do(n))
    assert estimate._fit_line(lambda n: 0.25 + 0.125 * n, 100, 8) == (0.25, 0.125)
    assert estimate._fit_line(lambda n: 3.0, 1, 8) == (3.0, 0.0)  # one step is all there is


@pytest.mark.parametrize("keys", [{}, {"num_clients": 40, "partition": "iid"}], ids=["alone", "lockstep"])
def test_a_speed_is_measured_and_leaves_nothing(configured, keys):
    speed = speed_of(configured(strategy="scaffold", objective="scaffold", **keys))
    assert speed.client + speed.step > 0
    assert speed.evaluation + speed.example > 0


def test_runs_of_a_kind_are_measured_once(configured):
    assert kind_of(configured(seed=1, client_lr=0.1)) == kind_of(configured(seed=2, rounds=9))
    assert kind_of(configured(batch_size=8)) != kind_of(configured(batch_size=9))


@pytest.mark.parametrize(
    ("keys", "seconds"),
    [
        ({"backend": "inline"}, 35),
        ({"backend": "ray", "workers": 1}, 35),
        # two clients a round, four workers: a full set side by side, then one that two workers can help with
        ({"backend": "ray", "workers": 4}, 7 + 7 / 2),
        # in two pairs, the fifth alone
        ({"backend": "ray", "workers": 2}, 2 * 7 + 7 / 2),
        ({"backend": "ray", "workers": 8}, 7),
        ({"backend": "ray", "workers": 8, "ray_address": "there:1"}, 35 / 2),
    ],
)
def test_five_runs_of_seven_seconds(configured, tmp_path, keys, seconds):
    cells_of = pytest.importorskip("fedbn_flower.sweeps.cells").cells_of
    cells = cells_of([configured(seed=i, **keys) for i in range(5)], (), tmp_path)
    assert estimate.elapsed(cells, {cell.name: 7.0 for cell in cells}) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "about 1 s"),
        (89, "about 89 s"),
        (90, "about 2 min"),
        (5399, "about 90 min"),
        (5400, "about 1.5 h"),
    ],
)
def test_a_time_in_words(seconds, words):
    assert estimate.in_words(seconds) == words


def test_a_dry_run_shows_what_would_run_and_writes_nothing(cache_dir, tmp_path, monkeypatch, capsys):
    pytest.importorskip("fedbn_flower.sweeps")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(estimate, "_seconds", lambda do, n: 30.0 * n)  # 30 s a step and an example
    words = ["--cache-dir", str(cache_dir), "--backend", "inline", "--batch-size", "0", "--local-epochs", "1"]
    words += ["--seed", "0,1", "--rounds", "2", "--fraction-evaluate", "0", "--dry-run"]
    assert cli.main([*words, "--run-dir", "g"]) == 0
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "fedyogi-fedbn-plain-seed0",
        "fedyogi-fedbn-plain-seed1",
        "2 runs; about 8 min to go",  # 2 runs of 2 rounds of 4 clients, a step of 30 s each
    ]


def test_of_a_run_that_was_begun_the_rounds_to_go_count(configured, monkeypatch):
    """One of two, of two clients, a step of 30 s each."""
    monkeypatch.setattr(estimate, "_seconds", lambda do, n: 30.0 * n)
    config = configured(batch_size=0, fraction_evaluate=0)
    begun = SimpleNamespace(name="a", summary=None, started=True, rounds_done=1, config=config)
    done = SimpleNamespace(name="b", summary={"rounds": 2})
    assert estimate.describe_runs([done, begun]) == [
        "b  done",
        "a  1 of 2 rounds done",
        "2 runs, 1 done; about 60 s to go",
    ]


def test_a_mistake_is_reported_by_a_dry_run_too(capsys):
    assert cli.main(["--client-lr", "0", "--dry-run"]) == 2
    assert capsys.readouterr().err.startswith("error: client-lr: '0' is not allowed")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("names", EACH, ids=title)
def test_every_algorithm_can_be_measured(configured, monkeypatch, names):
    monkeypatch.setattr(estimate, "_seconds", lambda do, n: do(1) or 1e-3 * n)
    assert speed_of(configured(**names)).step > 0


@pytest.mark.parametrize(
    "keys",
    [
        {"secagg": "on", "secagg_min": 2, "clip_update_norm": 1.0},
        {"secagg": "on", "secagg_min": 2, "dp": "client", "dp_noise": 1.0, "dp_clip": 1.0, "dp_delta": 1e-3},
        {"attack": "sign-flip:5", "attackers": "1"},
    ],
    ids=str,
)
def test_runs_that_sum_in_secret_or_are_attacked_can_be_measured(configured, monkeypatch, keys):
    monkeypatch.setattr(estimate, "_seconds", lambda do, n: do(1) or 1e-3 * n)
    assert speed_of(configured(**keys, client="silobn")).step > 0
