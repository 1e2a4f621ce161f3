"""Who masks with whom, and how many shares are to be there: against simulated drop-outs."""

import os
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fedbn_flower.secagg import words
from fedbn_flower.secagg.cryptography import LENGTH
from fedbn_flower.secagg.graph import default_k, neighbours, threshold
from fedbn_flower.secagg.session import Session
from fedbn_flower.secagg.signatures import Card


@settings(max_examples=80, deadline=None)
@given(
    members=st.lists(st.integers(-3, 10**6), min_size=1, max_size=40, unique=True),
    k=st.integers(1, 45),
    seed=st.integers(0, 2**63),
)
def test_graphs_are_symmetric_and_regular(members, k, seed):
    graph = neighbours(members, k, seed)
    n = len(members)
    assert list(graph) == sorted(members)
    assert all(me in graph[other] for me, others in graph.items() for other in others)
    assert all(list(others) == sorted({*others} - {me}) for me, others in graph.items())
    wanted = n - 1 if k >= n - 1 else k + (k % 2) * (n % 2)
    assert {len(others) for others in graph.values()} == {wanted}
    assert graph == neighbours(members[::-1], k, seed)


@pytest.mark.parametrize("shares", [52, 90, 100])
def test_each_of_many_clients_has_as_many_neighbours_as_shares_are_asked_for(shares):
    """By default 78; a secret is in one share more, the client's own."""
    session = Session("tag", 3, shares, "")
    asked = session.invited({node: Card(os.urandom(2 * LENGTH)) for node in range(100)})
    assert {len(invitation[words.NEIGHBOURS]) for invitation in asked.values()} == {max(78, shares - 1)}


def is_connected(graph, gone=()):
    left = sorted(graph.keys() - set(gone))
    place = {me: i for i, me in enumerate(left)}
    rows, columns = zip(
        *((place[me], place[other]) for me in left for other in graph[me] if other in place), strict=True
    )
    matrix = coo_array((np.ones(len(rows)), (rows, columns)), shape=(len(left), len(left)))
    return connected_components(matrix)[0] == 1


@pytest.mark.parametrize(("n", "k"), [(8, 4), (9, 4), (8, 3)])
def test_any_k_minus_1_may_go_and_the_others_stay_connected(n, k):
    graph = neighbours(range(n), k, 1)
    assert all(is_connected(graph, gone) for gone in combinations(range(n), k - 1))


def test_every_pair_is_as_probable():
    counts = Counter(pair for seed in range(2000) for pair in [neighbours(range(8), 2, seed)[0]])
    singles = Counter(other for pair, count in counts.items() for other in pair for _ in range(count))
    assert all(abs(singles[other] - 2000 * 2 / 7) < 100 for other in range(1, 8))


def test_few_clients_all_mask_with_each_other():
    assert neighbours([3, 1, 2], 20, 0) == {1: (2, 3), 2: (1, 3), 3: (1, 2)}
    assert neighbours([7], 2, 0) == {7: ()}
    assert [len(others) for others in neighbours(range(6), 4, 0).values()] == [4] * 6
    assert [default_k(n) for n in (2, 3, 5, 10)] == [1, 2, 4, 9]


@pytest.mark.parametrize(("members", "k"), [([1, 1], 1), ([1, 2], 0)])
def test_a_graph_that_is_none_is_refused(members, k):
    with pytest.raises(ValueError, match="all different"):
        neighbours(members, k, 0)


@pytest.mark.parametrize(
    ("n", "tolerance", "shares"),
    [(2, 0.3, 2), (3, 1 / 3, 2), (3, 0.2, 3), (4, 1 / 3, 3), (5, 0.4, 3), (10, 0.3, 7), (6, 1 / 3, 4)],
)
def test_of_few_clients_all_that_have_to_survive_are_needed(n, tolerance, shares):
    """By hand: n - floor(tolerance n)."""
    assert threshold(n, tolerance) == shares


@pytest.mark.parametrize(("n", "tolerance", "k"), [(4, 0.5, None), (1, 0.3, None), (100, 0.3, 10)])
def test_too_many_that_may_drop_out_are_refused(n, tolerance, k):
    with pytest.raises(ValueError, match="may drop out"):
        threshold(n, tolerance, k)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "tolerance", "corrupt"), [(100, 0.05, 0.1), (100, 0.3, 0.1), (300, 0.2, 0.0)])
def test_simulated_drop_outs_leave_enough_shares_and_a_connected_graph(n, tolerance, corrupt):
    k = default_k(n, tolerance, corrupt)
    shares = threshold(n, tolerance, k)
    assert 4 <= k < n - 1
    assert 2 * shares > k + 1
    rng = np.random.default_rng(10**6)  # not one of the graphs' seeds
    for seed in range(50):
        graph = neighbours(range(n), k, seed)
        order = rng.permutation(n)
        gone, liars = set(order[: int(tolerance * n)]), set(order[::-1][: int(corrupt * n)])
        left = [len({me, *others} - gone) for me, others in graph.items()]
        assert min(left) >= shares
        # A lying server: those who tell it both shares, and the others, half of whom tell it either.
        both = [len(set(others) & liars) for others in graph.values()]
        assert all((k + 1 + count) // 2 < shares for count in both)
        assert is_connected(graph, gone | liars)


@pytest.mark.slow
def test_a_threshold_is_the_greatest_that_drop_outs_allow():
    """Of 200,000 clients that lose 10 of 40 at random, next to none has fewer than that many shares."""
    n, tolerance, k = 40, 0.25, 20
    shares, rng = threshold(n, tolerance, k), np.random.default_rng(1)
    left = np.array(
        [
            min(len({me, *others} - gone) for me, others in neighbours(range(n), k, seed).items())
            for seed in range(3000)
            for gone in [set(rng.permutation(n)[:10])]
        ]
    )
    assert np.mean(left < shares) < 0.003
    assert np.mean(left <= shares) > 0.0003
