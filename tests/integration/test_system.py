"""Stragglers, dropouts and clients that are not always there: the same on every runtime."""

import csv

import pytest

from .processes import bits

pytestmark = pytest.mark.slow


def answers(folder):
    """Who trained and evaluated when, and how many steps it did."""
    with (folder / "clients.csv").open() as file:
        return [(r["round"], r["phase"], r["partition"], r["local-steps"]) for r in csv.DictReader(file)]


@pytest.mark.parametrize(("fast", "drop"), [("off", False), ("auto", True)])
def test_the_same_bits_on_all_workers(fast, drop, tmp_path, on_all_workers):
    """In lockstep (``auto``) too. Under ``flwr run`` it is `test_measures`'s."""
    there = tmp_path / "there.csv"
    there.write_text("partition-id,from,to\n0,2,3\n4,1,1\n4,4,4\n")
    keys = {
        "strategy": "scaffold", "objective": "scaffold", "client": "fedbn", "partition": "dirichlet:0.5",
        "num-clients": 6, "rounds": 4, "fraction-train": 0.9, "stragglers": 0.5, "drop-stragglers": drop,
        "dropout": 0.2, "availability": str(there), "fast": fast,
    }  # fmt: skip
    folders = on_all_workers(keys)
    assert len({bits(folder) for folder in folders}) == 1
    found = [answers(folder) for folder in folders]
    assert found[1:] == found[:-1]
    assert len({steps for *_, steps in found[0]}) > 2
