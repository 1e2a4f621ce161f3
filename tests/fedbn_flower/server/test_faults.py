"""What a dead, dwindling or lying part of the federation does to a whole run in this process."""

import pytest

from clients import CLIENTS
from fedbn_flower.core.errors import RunFailed, UserError
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.runtime.server_app import StreamingGrid
from fedbn_flower.server.federation import Federation
from strategies import STRATEGIES
from tests.quick import some_quick

from ..combinations import COVER, every_name, title
from ..records.helpers import Watching, rows_of
from ..runtime.test_simulation import Fragile, explode

BUFFERED = {"protocol": "fedbuff:2", "concurrency": 3}


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({}, "5 nodes .num-clients"),
        (BUFFERED, "3 nodes .concurrency"),
        (BUFFERED | {"devices": "uniform"}, "5 nodes .num-clients"),
    ],
)
def test_nodes_that_never_come_are_one_line(configured, keys, wanted):
    """On devices' clock it is known beforehand whose turn it is: all nodes are needed."""
    config = configured(partition="iid", num_clients=5, node_timeout=0.1, **keys)
    with pytest.raises(RunFailed, match=rf"^waited 0.1 s for {wanted}\); 2 connected; .* a clock"):
        Federation(config).run(InlineGrid(2, config.to_user_config()), [])


class Registering(InlineGrid):
    """Of whose nodes one more is there at each look."""

    seen = 0

    def get_node_ids(self):
        self.seen += 1
        return list(super().get_node_ids())[: self.seen - 1]


def test_where_flower_simulates_fewer_nodes_nobody_waits_for_others(configured, monkeypatch):
    """What it is still registering is waited for."""
    monkeypatch.setattr("fedbn_flower.server.checks.REGISTERING", 0)
    config = configured(partition="iid", num_clients=5, rounds=1)
    keys = config.to_user_config()
    line = "^num-clients: 5 is not allowed; expected 3, the number of simulated .* num-supernodes=5$"
    with pytest.raises(UserError, match=line):
        Federation(config).run(StreamingGrid(Registering(3, keys)), [])
    Federation(config).run(StreamingGrid(Registering(5, keys)), [])


def test_a_round_of_too_few_answers_does_not_count(configured, monkeypatch):
    """Partition 1 fails from its second round on, and both are needed: only the first round counts."""
    monkeypatch.setitem(CLIENTS, "fragile", type("Broken", (Fragile,), {"breaks": staticmethod(explode)}))
    config = configured(client="fragile", rounds=3, min_replies=2)
    models = []
    federation = Federation(config)
    observer = Watching(lambda r: models.append({n: a.data for n, a in r.arrays.items()}))
    federation.run(InlineGrid(2, config.to_user_config()), [observer])
    assert federation.strategy.rule_state.updates == 1
    assert models[0] == models[1] == models[2]


def test_a_run_that_goes_on_in_which_all_clients_fail_fails(finished, tmp_path, monkeypatch):
    finished(tmp_path, rounds=1, checkpoint_every=1)
    monkeypatch.setattr(CLIENTS["fedbn"], "fit", explode)
    with pytest.raises(
        RunFailed, match="^every client failed in every round; the model was never updated; 4 o"
    ):
        finished(tmp_path, rounds=3, resume=str(tmp_path))


@pytest.mark.parametrize("phase", ["evaluate", "none"])
def test_if_nobody_was_evaluated_in_the_last_round_one_line_says_so(configured, monkeypatch, caplog, phase):
    monkeypatch.setitem(CLIENTS, "fragile", type("Broken", (CLIENTS["fedbn"],), {phase: explode}))
    config = configured(client="fragile", partition="iid", num_clients=2)
    Federation(config).run(InlineGrid(2, config.to_user_config()), [])
    line = "round 2, the last: nobody was evaluated, so the summary has no metrics"
    assert caplog.messages.count(line) == (phase == "evaluate")


def takes_one_mean(names):
    """Whether the rule or a client goes with the weighted mean only, or with whole updates."""
    chosen = [STRATEGIES[names["strategy"]], *(CLIENTS[name] for name in names["client"].split("+"))]
    return any({"mean", "clip-update-norm"} & set(getattr(one, "requires", ())) for one in chosen)


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    some_quick([*every_name([n for n in COVER if not takes_one_mean(n)])], range(0, 40, 2)),
    ids=title,
)
def test_every_rule_runs_on_robust_means(finished, tmp_path, names):
    robust = {"mean": "median", "clip_update_norm": 1.0, "max_num_examples": 2000, "min_replies": 3}
    summary = finished(tmp_path / "run", **names, **robust, partition="iid", num_clients=3, rounds=1)
    assert summary["failures"] == 0


def test_the_cap_on_examples_is_for_training(finished, tmp_path):
    """One client trains on fewer than 300 images, the other on more; both evaluate on 360."""
    finished(tmp_path / "run", max_num_examples=300, rounds=1, partition="silos:0,1-9")
    output = [(row["phase"], row["partition"]) for row in rows_of(tmp_path / "run", "clients.csv")]
    assert output == [("train", "0"), ("evaluate", "0"), ("evaluate", "1")]


def test_what_makes_every_answer_useless_ends_the_run_in_one_line(finished, tmp_path):
    with pytest.raises(RunFailed, match="all 2 answers are refused for the same reason: 'num-examples'"):
        finished(tmp_path / "run", max_num_examples=300, rounds=1)
