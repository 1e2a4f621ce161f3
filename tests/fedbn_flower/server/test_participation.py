"""Whole runs in this process with stragglers, dropouts, and clients that are not always there."""

import json

import pytest

from fedbn_flower.core.errors import RunFailed
from fedbn_flower.records.events import Observer
from fedbn_flower.runtime.simulation import make_grid
from fedbn_flower.server.federation import Federation
from fedbn_flower.server.participation import participation

from ..records.helpers import bits, rows_of

MIXED = {"stragglers": 0.5, "dropout": 0.3, "availability": "cycle:3,2"}


def asked(result, phase="train"):
    return [row for row in rows_of(result.folder, "clients.csv") if row["phase"] == phase]


class Memories(Observer):
    """Every client's memory after each round, and who trained in it."""

    def __init__(self, grid):
        self.grid = grid
        self.rounds = [self.now()]
        self.trained = []

    def now(self):
        memories = map(self.grid.client_memory, range(self.grid.num_clients))
        return [
            {(group, name): array.tobytes() for group, own in memory.items() for name, array in own.items()}
            for memory in memories
        ]

    def on_round(self, result):
        self.rounds.append(self.now())
        self.trained.append(set(result.train.metrics))
        assert result.failures == 0


def test_a_client_that_takes_no_part_keeps_what_it_remembers(configured):
    """FedDyn's g_i and FedBN's statistics change in those alone who train."""
    config = configured(
        strategy="feddyn", objective="feddyn", partition="iid", num_clients=5, rounds=4, **MIXED,
        drop_stragglers=True,
    )  # fmt: skip
    federation = Federation(config)
    grid = make_grid(federation, None)
    watch = Memories(grid)
    federation.run(grid, [watch])
    who = participation(config)
    for n, trained in enumerate(watch.trained, start=1):
        before, after = watch.rounds[n - 1 : n + 1]
        assert trained == {i for i in range(5) if who.available(n, i) and who.answers(n, i)}
        assert trained == {i for i in range(5) if before[i] != after[i]}
    assert any(0 < len(trained) < 5 for trained in watch.trained)


@pytest.mark.slow
def test_rounds_in_which_nobody_is_there_leave_the_model(run, tmp_path):
    """Both are there in round 2 of 4 alone; resumed after it, nobody is asked any more."""
    there = tmp_path / "there.csv"
    there.write_text("partition-id,from,to\n0,2,2\n1,2,2\n")
    keys = {"client": "shared", "availability": str(there)}
    short, whole = run(**keys, rounds=2, run_dir="short"), run(**keys, rounds=4)
    assert bits(short) == bits(whole) == bits(run(resume=short.folder, rounds=4))
    assert [row["round"] for row in asked(whole)] == ["2", "2"]
    assert [row["round"] for row in asked(whole, "evaluate")] == ["2", "2"]
    summary = json.loads((whole.folder / "summary.json").read_text())
    assert (summary["rounds"], summary["failures"], summary["clients"]) == (4, 0, {})
    assert summary["global"]["accuracy"] > 0.1


def test_a_run_in_which_nobody_ever_takes_part_fails(run, tmp_path):
    there = tmp_path / "there.csv"
    there.write_text("partition-id,from,to\n0,9,9\n1,9,9\n")
    with pytest.raises(RunFailed, match="no client took part in any round; the model was never updated"):
        run(availability=str(there))
