"""Runs that end when they no longer get better, and keep the model of their best round."""

import json

import numpy as np
import pytest
from flwr.app import MetricRecord

from clients import CLIENTS, FedAvgClient, Regression
from fedbn_flower import UserError, load_model
from fedbn_flower.extensions.patience import Patience
from fedbn_flower.records.metrics import medians
from fedbn_flower.results.checkpoints.checkpoint_folder import BEST, LAST
from fedbn_flower.results.run_folder import RunFolder
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation
from strategies import FedAvg
from tests.fedbn_flower.records.helpers import Stops, info, result
from tests.fedbn_flower.records.helpers import rows_but_times as rows
from tests.quick import some_quick

GOOD = 3
"""Rounds for which the rule below learns."""


class Falls(FedAvg):
    """After three rounds it goes back the way it came, and further."""

    def server_step(self, delta, state, round):
        return delta if round.number <= GOOD else -4 * delta


FALLING = {
    "strategy": f"{__name__}:Falls", "num_clients": 4, "partition": "dirichlet:0.5", "val_fraction": 0.2,
    "fraction_train": 0.5, "rounds": 9, "batch_size": 128,
}  # fmt: skip
TIMES = {"seconds", "seconds-per-round", "seconds-split", "client-updates-per-second"}


def summary(folder):
    found = json.loads((folder / "summary.json").read_text())
    return {key: value for key, value in found.items() if key not in TIMES}


def own_models(folder, clients=4):
    """Every client's whole model, as one vector; None for a client that keeps nothing yet."""
    found = []
    for client in range(clients):
        try:
            entries = load_model(folder, client).state_dict().values()
            found.append(np.concatenate([x.numpy().ravel() for x in entries]).tolist())
        except UserError:
            found.append(None)
    return found


def best_round(folder):
    return max(rows(folder), key=lambda row: (float(row["accuracy"]), -int(row["round"])))["round"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("every", [1, 4])
def test_the_model_is_that_of_the_best_round_and_the_run_is_not_gone_on_with(finished, tmp_path, every):
    """It is the model, with the clients' own entries and the test figures, of a run of so many rounds."""
    run, same, keys = tmp_path / "run", tmp_path / "same", FALLING | {"patience": 2}
    output = finished(run, **keys, checkpoint_every=every)
    best = int(best_round(run))
    assert (output["best-round"], output["rounds"], output["stopped"]) == (best, best + 2, "patience")
    assert best <= GOOD
    expected = finished(same, **FALLING | {"rounds": best})
    assert (expected["best-round"], expected["stopped"], (same / BEST).exists()) == (None, None, False)
    assert (run / "model.safetensors").read_bytes() == (same / "model.safetensors").read_bytes()
    assert own_models(run) == own_models(same)
    for key in ("mean", "client-mean", "worst-client", "clients", "per-class"):
        assert output[key] == expected[key]
    assert (run / "classes.csv").read_text() == (same / "classes.csv").read_text()
    wanted = (
        rf"resume: .* a run that did not end by itself; this one did, after {best + 2} rounds \(patience\)"
    )
    with pytest.raises(UserError, match=wanted):
        finished(run, **keys, resume=str(run))


def test_it_goes_by_the_global_model_where_no_client_evaluates(finished, tmp_path):
    chosen = FALLING | {"client": "shared", "fraction_evaluate": 0.0}
    output = finished(tmp_path / "run", **chosen, patience=1)
    accuracies = [float(row["global-accuracy"]) for row in rows(tmp_path / "run")]
    assert output["best-round"] == 1 + int(np.argmax(accuracies)) == len(accuracies) - 1
    assert output["mean"] is None


@pytest.mark.slow
def test_rounds_that_are_not_evaluated_count_but_end_nothing(finished, tmp_path):
    """Evaluated after 2, 4, 6: 4 is worse than 2 by one evaluation, 6 is four rounds after it."""
    keys = FALLING | {"patience": 3, "evaluate_every": 2, "eval_model": "local"}
    output = finished(tmp_path / "run", **keys)
    evaluated = {int(r["round"]): float(r["accuracy"]) for r in rows(tmp_path / "run") if r["accuracy"]}
    best = max(evaluated, key=lambda n: (evaluated[n], -n))
    assert set(evaluated) == set(range(2, output["rounds"] + 1, 2)) | (
        {9} if output["rounds"] == 9 else set()
    )
    assert output["best-round"] == best
    assert output["stopped"] is None or output["rounds"] - best >= 3 > output["rounds"] - 2 - best


def same_run(got, expected):
    assert (got / "model.safetensors").read_bytes() == (expected / "model.safetensors").read_bytes()
    assert summary(got) == summary(expected)
    assert own_models(got) == own_models(expected)
    assert rows(got) == rows(expected)
    for name in ("classes.csv", "predictions.parquet"):
        assert (got / name).read_bytes() == (expected / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(("every", "stops"), [(1, [4]), (2, [3]), (4, [3, 4])])
def test_a_run_that_was_stopped_goes_on_to_the_same_end(
    configured, finished, tmp_path, monkeypatch, every, stops
):
    """Also from its best round, where no checkpoint came after it; nothing is written at its end."""
    chosen = FALLING | {"patience": 2, "checkpoint_every": every}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    finished(whole, **chosen)
    resume = {}
    for after in stops:
        with monkeypatch.context() as killed:
            killed.setattr(RunFolder, "finish", lambda self: self.writer.close())
            with pytest.raises(KeyboardInterrupt):
                simulate(Federation(configured(**chosen, **resume)), parts, None, [Stops(after)])
        resume = {"resume": str(parts)}
    finished(parts, **chosen, **resume)
    same_run(parts, whole)


def test_nothing_up_to_the_best_round_is_done_again(configured, finished, tmp_path):
    """Its rows are those of before, with the seconds that it took."""
    chosen = FALLING | {"patience": 2, "checkpoint_every": 9}
    with pytest.raises(KeyboardInterrupt):
        simulate(Federation(configured(**chosen)), tmp_path, None, [Stops(4)])
    best, before = int(best_round(tmp_path)), (tmp_path / "metrics.csv").read_text().splitlines()
    finished(tmp_path, **chosen, resume=str(tmp_path))
    after = (tmp_path / "metrics.csv").read_text().splitlines()
    assert best > 1
    assert after[: best + 1] == before[: best + 1]


@pytest.mark.slow
def test_so_does_one_that_was_killed_between_its_two_checkpoints(finished, tmp_path, monkeypatch):
    chosen = FALLING | {"patience": 2}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    finished(whole, **chosen)
    save = RunFolder._save_checkpoint

    def killed(self, result, name):
        if (result.server_round, name) == (GOOD, LAST):
            raise KeyboardInterrupt
        save(self, result, name)

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "_save_checkpoint", killed)
        patched.setattr(RunFolder, "finish", lambda self: self.writer.close())
        with pytest.raises(KeyboardInterrupt):
            finished(parts, **chosen)
    finished(parts, **chosen, resume=str(parts))
    same_run(parts, whole)


@pytest.mark.slow
def test_a_run_that_ended_by_patience_in_its_last_round_is_not_gone_on_with(finished, tmp_path):
    run, keys = tmp_path / "run", FALLING | {"patience": 1, "rounds": GOOD + 1}
    finished(run, **keys)
    assert (summary(run)["rounds"], summary(run)["stopped"]) == (GOOD + 1, "patience")
    wanted = r"resume: .* a run that did not end by itself; this one did, after 4 rounds \(patience\)"
    with pytest.raises(UserError, match=wanted):
        finished(run, **keys, resume=str(run))


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"patience": 2}, "patience: 2 is not allowed; expected 0 without val-fraction"),
        ({"patience": 2, "val_fraction": 0.1, "fraction_evaluate": 0.0}, "0: nothing is evaluated"),
        ({"decide_by": "server"}, "decide-by: 'server' is not allowed; expected another one with local"),
        (
            {"decide_by": "median", "client": "shared", "fraction_evaluate": 0.0},
            "decide-by: 'median' is not allowed; expected 'server' with fraction",
        ),
    ],
)
def test_mistakes(refusal, keys, line):
    assert line in refusal(**keys)


def test_a_loss_is_better_where_it_is_lower():
    """2, 1, 1.5, 1.2: the best is that of round 2, and two rounds without a better one end the run.

    Killed after each round, it goes on from its state.
    """
    state, noted = {}, []
    for server_round, loss in enumerate((2.0, 1.0, 1.5, 1.2), start=1):
        patience = Patience(info(config={"patience": 2}, compared_by="loss"))
        patience.restore(state)
        decided = patience.after_round(result(server_round, {"loss": loss}))
        noted.append((decided.improved, decided.kept, decided.stopped))
        state = json.loads(json.dumps(patience.state()))
    assert noted == [(True, True, ""), (True, True, ""), (False, False, ""), (False, False, "patience")]
    assert state == {"best": 1.0, "best_round": 2}


def lying_about(accuracy):
    class Lying(FedAvgClient):
        def evaluate(self, parameters, config):
            loss, count, metrics = super().evaluate(parameters, config)
            lies = self.task.seed[1] == 1 and config["server-round"] == 1
            return loss, count, metrics | ({"accuracy": accuracy} if lies else {})

    return Lying


@pytest.mark.parametrize("decide_by", some_quick(["median", "mean", "pooled"], {0, 1}))
def test_whose_metric_decides(finished, tmp_path, monkeypatch, decide_by):
    """One of three clients claims in round 1 that all is right: it moves the means, not median and server."""
    monkeypatch.setitem(CLIENTS, "lying", lying_about(1.0))
    keys = {"client": "lying", "partition": "iid", "num_clients": 3, "rounds": 3, "local_epochs": 1}
    keys |= {"val_fraction": 0.2, "patience": 5, "client_lr": 0.003, "strategy": "fedavg", "batch_size": 128}
    folder = tmp_path / "run"
    output = finished(folder, **keys, decide_by=decide_by)
    of_server = [float(row["global-accuracy"]) for row in rows(folder)]
    honest = 1 + int(np.argmax(of_server))
    assert honest > 1
    assert output["best-round"] == (1 if decide_by in ("mean", "pooled") else honest)
    medians = [row.get("client-median-accuracy") for row in rows(folder)]
    if decide_by == "median":
        assert [float(m) for m in medians] == pytest.approx(of_server)
    else:
        assert medians == [None] * 3


def test_by_default_the_server_decides_where_it_evaluates_what_clients_do(configured):
    def decides(**keys):
        return Federation(configured(**keys)).decide_by

    assert decides(client="shared") == decides(fraction_evaluate=0.0, client="shared") == "server"
    assert decides() == decides(client="shared", eval_model="local") == "pooled"
    assert decides(client="shared", fine_tune=1) == "pooled"
    assert (
        decides(client="shared", adapt_bn=True) == decides(client="shared", best="cross-fitted") == "pooled"
    )


def test_a_median_is_of_those_that_report_by_hand():
    reported = [MetricRecord({"loss": loss}) for loss in (1.0, 5.0, 1e30, 2.0)] + [MetricRecord({"a": 1})]
    assert medians(reported, Regression()) == {"client-median-loss": 3.5}
