"""System heterogeneity: what is drawn, what a file says, and every mistake in it."""

import numpy as np
import pytest

from fedbn_flower.config.making import run_config
from fedbn_flower.core.errors import UserError
from fedbn_flower.job.participation import availability, share_of_work
from fedbn_flower.server.participation import participation

COUNT = 3000


def shares(stragglers, seed=0, server_round=1, count=COUNT):
    return np.array([share_of_work(seed, stragglers, i, server_round) for i in range(count)])


def who_answers(server_round=1, count=COUNT, **values):
    who = participation(run_config({"partition": "iid", "num-clients": count, **values}))
    return np.array([who.answers(server_round, i) for i in range(count)])


def test_a_straggler_does_a_uniform_share():
    """Kolmogorov and Smirnov's distance is beyond 1.95 / sqrt(n) once in a thousand times."""
    found = shares(0.3)
    partial = np.sort(found[found < 1])
    assert abs(len(partial) - 0.3 * COUNT) < 4 * np.sqrt(COUNT * 0.3 * 0.7)
    n = len(partial)
    distance = np.abs(partial - (np.arange(n) + 0.5) / n).max() + 0.5 / n
    assert distance < 1.95 / np.sqrt(n)


def test_the_probabilities_nobody_and_everybody():
    assert (shares(0.0, count=100) == 1).all()
    assert (shares(1.0, count=100) < 1).all()


def test_more_stragglers_are_the_same_ones_and_others():
    few, many = shares(0.3, count=500), shares(0.7, count=500)
    assert (few[few < 1] == many[few < 1]).all()
    assert (many[few == 1] < 1).any()


def test_every_round_client_and_seed_is_drawn_anew():
    draws = [shares(1.0, seed, server_round, 500) for seed in (0, 1) for server_round in (1, 2)]
    assert len(np.unique(draws)) == 4 * 500
    for i, one in enumerate(draws):
        for other in draws[:i]:
            assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(500)
        assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 4 / np.sqrt(500)


def test_who_drops_out_is_drawn_by_itself():
    out, partial = ~who_answers(dropout=0.2), shares(0.5) < 1
    for found, p in ((out, 0.2), (out & partial, 0.1)):
        assert abs(found.sum() - p * COUNT) < 4 * np.sqrt(COUNT * p * (1 - p))
    assert (who_answers(server_round=2, count=500, dropout=0.2) == out[:500]).mean() < 0.8


@pytest.mark.parametrize("drop", [False, True])
def test_who_straggles_answers_unless_that_is_not_used(drop):
    answering = who_answers(count=500, stragglers=0.5, **{"drop-stragglers": drop})
    np.testing.assert_array_equal(answering, (shares(0.5, count=500) == 1) | (not drop))


def test_a_cycle_by_hand():
    """Of every four rounds two: from the first, and from the second."""
    there = availability("cycle:4,2", 0, 2)
    there.offsets.update({0: 0, 1: 3})
    assert [[t for t in range(1, 9) if there(t, i)] for i in (0, 1)] == [[1, 2, 5, 6], [2, 3, 6, 7]]


def test_where_a_cycle_begins_is_drawn():
    there = availability("cycle:5,2", 7, 1000)
    patterns = [tuple(there(t, i) for t in range(1, 11)) for i in range(1000)]
    by_offset = [patterns.count(tuple((t - 1 + o) % 5 < 2 for t in range(1, 11))) for o in range(5)]
    assert sum(by_offset) == 1000
    assert all(abs(count - 200) < 4 * np.sqrt(1000 * 0.2 * 0.8) for count in by_offset)
    again, other = (availability("cycle:5,2", seed, 1000) for seed in (7, 8))
    assert patterns == [tuple(again(t, i) for t in range(1, 11)) for i in range(1000)]
    assert patterns != [tuple(other(t, i) for t in range(1, 11)) for i in range(1000)]


def test_a_full_cycle_and_always_are_the_same():
    for text in ("always", "cycle:3,3"):
        assert all(availability(text, 0, 5)(t, i) for t in range(1, 10) for i in range(5))


def test_a_file_is_the_same_one_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = run_config({"availability": "there.csv"})
    assert config.availability == str(tmp_path / "there.csv")
    assert run_config(config.to_user_config()).availability == config.availability
    with pytest.raises(UserError, match="availability: '.*~nobody-of-that-name/x' is not allowed"):
        participation(run_config({"availability": "~nobody-of-that-name/x"}))


def test_a_file_by_hand(tmp_path):
    """With what a spreadsheet adds: a mark of its encoding, its line ends, an empty line."""
    file = tmp_path / "there.csv"
    file.write_bytes("\ufeffpartition-id,from,to\r\n0,2,3\r\n2,1,1\r\n\r\n0,5,5\r\n".encode())
    there = availability(str(file), 0, 3)
    assert [[t for t in range(1, 7) if there(t, i)] for i in range(3)] == [[2, 3, 5], [1, 2, 3, 4, 5, 6], [1]]


@pytest.mark.parametrize(
    ("rows", "output"),
    [
        (None, "is not allowed; expected always, cycle:PERIOD,ON with 1 <= ON <= PERIOD, or a CSV file"),
        (b"\xff\xfe", "is not allowed; expected always, cycle"),
        (b"", "is not allowed; expected a CSV file with header partition-id,from,to"),
        (b"partition,from,to\n", "expected a CSV file with header partition-id,from,to"),
        *(
            (
                b"partition-id,from,to\n0,1,2\n" + row,
                "there.csv' is not allowed; expected a partition-id below num-clients, 2, and rounds with "
                "1 <= from <= to",
            )
            for row in (b"2,1,2", b"-1,1,2", b"0,0,2", b"0,3,2", b"0,1", b"0,1,2,3", b"a,1,2", b"0,1.5,2")
        ),
    ],
)
def test_a_file_that_cannot_be_ends_it_before_anything_starts(tmp_path, refusal, rows, output):
    if rows is not None:
        (tmp_path / "there.csv").write_bytes(rows)
    error = refusal(availability=str(tmp_path / "there.csv"))
    assert error.startswith("availability: ")
    assert "there.csv" in error
    assert output in error
    assert "line" not in error or f"'{rows.decode().splitlines()[-1]}' in line 3 of" in error


def test_many_are_answered_as_each_is(tmp_path):
    listed = tmp_path / "rounds.csv"
    listed.write_text("partition-id,from,to\n1,1,2\n1,5,5\n3,2,9\n")
    partitions = np.array([0, 1, 2, 3, 4])
    for text in ("always", "cycle:3,1", str(listed)):
        who = participation(
            run_config(
                {"partition": "iid", "num-clients": 5, "holdout-clients": 2, "availability": text, "seed": 3}
            )
        )
        assert who.all_taking_part(partitions).tolist() == [who.takes_part(i) for i in range(5)]
        assert sum(who.all_taking_part(partitions)) == 3
        for number in range(1, 8):
            there = [who.available(number, i) for i in range(5)]
            assert who.all_available(number, partitions).tolist() == there
