"""Which runs are side by side."""

import pytest

from fedbn_flower.sweeps.cells import Cell
from fedbn_flower.sweeps.processes import (
    can_run_in_parallel,
    clients_in_a_round,
    number_in_parallel,
    side_by_side,
)


@pytest.mark.parametrize(
    ("runs", "workers", "clients", "together"),
    [
        (12, 2, 10, 12),
        (12, 5, 10, 10),  # two are left: 2/5 of a unit with all workers on each, a whole one side by side
        (2, 16, 2, 2),  # two clients keep two workers busy: no matter, and nothing is sent
        (2, 16, 100, 0),
        (7, 1, 10, 7),
    ],
)
def test_the_quicker_way(runs, workers, clients, together):
    assert number_in_parallel(runs, workers, clients) == together


@pytest.mark.parametrize("workers", range(1, 9))
@pytest.mark.parametrize("clients", [1, 3, 10])
def test_no_other_number_is_quicker(workers, clients):
    """By the clock: a unit for every set of as many runs as workers, a part of one for a run on all."""

    def seconds(together, runs):
        return -(-together // workers) + (runs - together) / min(workers, clients)

    for runs in range(1, 30):
        chosen = seconds(number_in_parallel(runs, workers, clients), runs)
        assert chosen <= min(seconds(n, runs) for n in range(runs + 1)) + 1e-9


@pytest.mark.parametrize(
    ("keys", "fit"),
    [({"backend": "ray"}, True), ({}, False), ({"backend": "ray", "ray_address": "there:1"}, False)],
)
def test_only_runs_for_workers_of_this_machine_are(configured, keys, fit):
    cells = [Cell("a", configured(backend="ray")), Cell("b", configured(**keys))]
    assert can_run_in_parallel(cells) == fit


def test_the_run_with_the_fewest_clients_counts(configured):
    keys = ({"num_clients": 30, "fraction_train": 0.1}, {"num_clients": 10, "fraction_train": 0.05})
    cells = [Cell("a", configured(partition="iid", **one)) for one in keys]
    assert clients_in_a_round(cells[:1]) == 3
    assert clients_in_a_round(cells) == 1


def test_on_a_gpu_they_are_where_a_number_of_workers_is_given(configured):
    cells = [Cell("a", configured(device="cuda", backend="auto"))] * 3
    assert side_by_side(cells) == 0
    cells = [Cell("a", configured(device="cuda", backend="auto", workers=2))] * 3
    assert side_by_side(cells) == 3
