"""Client memories on disk: what outlives a SuperNode, what is refused, what a resumed run finds."""

import logging
import os
import shutil
import time

import numpy as np
import pytest
from flwr.app import ConfigRecord
from hypothesis import given, settings
from hypothesis import strategies as st

from clients import ContextStore
from fedbn_flower.core.errors import UserError
from fedbn_flower.site.memory_folder import FolderStore, MemoryFolder, Moment

RUN, NEXT = "20260101T000000000000-00000000", "20260102T000000000000-00000000"


def save(path, at, groups, client="client-0"):
    FolderStore(MemoryFolder(path, "m"), client, at, False, False).save(groups)


def load(path, at, after_training=False, earlier_runs=False, client="client-0"):
    return FolderStore(MemoryFolder(path, "m"), client, at, after_training, earlier_runs)


def moment(server_round, checkpoint_round=None, run=RUN):
    return Moment(run, server_round, server_round - 1 if checkpoint_round is None else checkpoint_round)


def memory(server_round):
    return {
        "local": {"bn.weight": np.full((2, 3), server_round, np.float32)},
        "g": {"t": np.array(7, np.int64), ".alpha": np.array([0.25])},
    }


def remembered(path, at, **options):
    """The round whose memory is loaded; None for nothing."""
    local = load(path, at, **options).read("local")
    return int(local["bn.weight"][0, 0]) if local else None


def rounds_kept(path):
    return sorted(int(p.stem.rsplit("-", 1)[1]) for p in path.glob("client-0-*.safetensors"))


def test_a_memory_comes_back_as_it_was(tmp_path):
    save(tmp_path, moment(1), memory(1))
    got = load(tmp_path, moment(2))
    for group, arrays in memory(1).items():
        found = got.read(group)
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array, strict=True)
    assert got.read("h") is None
    assert load(tmp_path, moment(2), earlier_runs=True, client="client-1").read("local") is None


def test_a_group_that_is_not_written_stays(tmp_path):
    """In both stores."""
    save(tmp_path, moment(1), memory(1))
    in_folder, in_context = load(tmp_path, moment(2)), ContextStore()
    in_context.save(memory(1))
    for store in (in_folder, in_context):
        store.save({"g": {"t": np.array(8)}})
        assert store.read("g")["t"] == 8
        np.testing.assert_array_equal(store.read("local")["bn.weight"], memory(1)["local"]["bn.weight"])
    assert load(tmp_path, moment(3)).read("g")["t"] == 8
    assert remembered(tmp_path, moment(3)) == 1


def test_a_round_starts_from_the_one_before_and_is_evaluated_after_itself(tmp_path):
    for r in (1, 2, 3):
        save(tmp_path, moment(r, 0), memory(r))
    assert remembered(tmp_path, moment(3)) == 2
    assert remembered(tmp_path, moment(3), after_training=True) == 3
    assert remembered(tmp_path, moment(1)) is None


def test_what_a_resumed_run_may_ask_for_is_kept(tmp_path):
    """Checkpoints after rounds 3 and 6: until the second, a run may be resumed from the first."""
    for r in range(1, 7):
        save(tmp_path, moment(r, 3 if r > 3 else 0), memory(r))
    assert rounds_kept(tmp_path) == [3, 4, 5, 6]
    save(tmp_path, moment(7, 6), memory(7))
    assert rounds_kept(tmp_path) == [6, 7]
    save(tmp_path, moment(8, 7), memory(8))
    assert rounds_kept(tmp_path) == [7, 8]
    save(tmp_path, moment(9, 8), memory(9))
    assert rounds_kept(tmp_path) == [8, 9]  # a generation back


def test_rounds_from_before_a_resumption_are_taken_away_when_done_again(tmp_path):
    for r in (3, 4, 5):
        save(tmp_path, moment(r, 3), memory(r))
    save(tmp_path, moment(4, 3), memory(40))
    assert rounds_kept(tmp_path) == [3, 4]
    assert remembered(tmp_path, moment(6, 3)) == 40


def test_a_new_run_starts_afresh_by_default(tmp_path):
    for r in (1, 2):
        save(tmp_path, moment(r), memory(r))
    assert remembered(tmp_path, moment(1, run=NEXT)) is None
    assert remembered(tmp_path, moment(1, run=NEXT), earlier_runs=True) == 2
    save(tmp_path, moment(1, run=NEXT), memory(10))
    assert remembered(tmp_path, moment(2, run=NEXT), earlier_runs=True) == 10
    assert rounds_kept(tmp_path) == [1, 1, 2]  # the earlier run's are its own
    assert remembered(tmp_path, moment(2)) == 1


THIRD, FOURTH = "20260103T000000000000-00000000", "20260104T000000000000-00000000"


def files(path):
    """Day and round of each file of a run, and the days of the runs that are marked as complete."""
    found = sorted(path.glob("client-0-*.safetensors"))
    marked = sorted(path.glob("client-0-*.complete"))
    return [(p.name[15:17], int(p.stem[-6:])) for p in found], [p.name[15:17] for p in marked]


def complete(path, run, last_round, client="client-0"):
    return MemoryFolder(path).note_complete(client, run, last_round)


def test_runs_that_take_turns_find_each_its_own(tmp_path):
    """Three runs on one site at a time, as sites that are shared have them; the first is resumed last."""
    for r, run in [(1, RUN), (1, NEXT), (2, RUN), (1, THIRD), (2, THIRD), (2, NEXT), (3, THIRD)]:
        save(tmp_path, moment(r, run=run), memory(10 * r + int(run[7])))
    assert files(tmp_path)[0] == [("01", 1), ("01", 2), ("02", 1), ("02", 2), ("03", 2), ("03", 3)]
    assert remembered(tmp_path, moment(3)) == 21
    assert remembered(tmp_path, moment(3, run=NEXT)) == 22
    assert remembered(tmp_path, moment(4, run=THIRD)) == 33
    assert load(tmp_path, moment(3)).last_round == 2
    assert (
        load(tmp_path, moment(1, run=FOURTH), earlier_runs=True).last_round == 0
    )  # it has saved none itself


def test_a_complete_run_keeps_its_last_memory_until_two_later_ones_are_complete(tmp_path):
    for run in (RUN, NEXT, THIRD, FOURTH):
        for r in (1, 2, 3):
            save(tmp_path, moment(r, run=run), memory(r))
    assert complete(tmp_path, RUN, 3) == 1
    assert files(tmp_path)[0][:3] == [("01", 3), ("02", 2), ("02", 3)]
    assert remembered(tmp_path, moment(4)) == 3
    assert complete(tmp_path, THIRD, 3) == 1
    kept = [("01", 3), ("02", 2), ("02", 3), ("03", 3), ("04", 2), ("04", 3)]
    assert files(tmp_path) == (kept, ["01", "03"])
    assert complete(tmp_path, FOURTH, 3) == 2
    assert files(tmp_path) == ([("02", 2), ("02", 3), ("03", 3), ("04", 3)], ["03", "04"])
    assert remembered(tmp_path, moment(4)) is None
    assert remembered(tmp_path, moment(4, run=NEXT)) == 3  # it was interrupted, and can be resumed


def test_of_complete_runs_the_last_to_end_count(tmp_path):
    """The first to start was interrupted, and is resumed and complete last."""
    for number, run in enumerate((NEXT, THIRD, RUN)):
        save(tmp_path, moment(1, run=run), memory(1))
        complete(tmp_path, run, 1)
        (mark,) = tmp_path.glob(f"*{run}.complete")
        os.utime(mark, (number, number))
    complete(tmp_path, RUN, 1)
    assert files(tmp_path) == ([("01", 1), ("03", 1)], ["01", "03"])


def test_rounds_that_are_added_to_a_complete_run_make_it_one_that_trains(tmp_path):
    for r in (1, 2):
        save(tmp_path, moment(r), memory(r))
    complete(tmp_path, RUN, 2)
    save(tmp_path, moment(2, 1), memory(20))  # an answer that comes after the end of the run
    assert files(tmp_path)[1] == ["01"]
    save(tmp_path, moment(3, 2), memory(3))
    assert files(tmp_path) == ([("01", 2), ("01", 3)], [])
    for run in (NEXT, THIRD, FOURTH):
        save(tmp_path, moment(1, run=run), memory(1))
        complete(tmp_path, run, 1)
    assert files(tmp_path)[0] == [("01", 2), ("01", 3), ("03", 1), ("04", 1)]


def aged(path, days):
    for file in path.glob("client-0-*.safetensors"):
        os.utime(file, (time.time() - days * 86400,) * 2)


def test_what_never_ends_goes_after_the_days_that_it_named_itself(tmp_path):
    """The days of the run that trains do not matter, and a complete run has none."""
    for run, days in ((RUN, 3), (NEXT, 0), (THIRD, 30)):
        folder = MemoryFolder(tmp_path, "m", keep_days=days)
        FolderStore(folder, "client-0", moment(1, run=run), False, False).save(memory(1))
    (tmp_path / f"client-0-{RUN}-000009.safetensors").write_bytes(b"damaged: it does not say how long")
    aged(tmp_path, 4)
    save(tmp_path, moment(1, run=FOURTH), memory(1), client="client-1")
    assert [run for run, _ in files(tmp_path)[0]] == ["01", "01", "02", "03"]  # another client's
    folder = MemoryFolder(tmp_path, "m", keep_days=1)
    FolderStore(folder, "client-0", moment(1, run=FOURTH), False, False).save(memory(1))
    assert files(tmp_path)[0] == [("01", 9), ("02", 1), ("03", 1), ("04", 1)]
    complete(tmp_path, THIRD, 1)
    aged(tmp_path, 31)
    save(tmp_path, moment(2, run=FOURTH), memory(2))
    assert files(tmp_path)[0] == [("01", 9), ("02", 1), ("03", 1), ("04", 1), ("04", 2)]


def test_what_another_run_is_about_to_write_is_left_alone(tmp_path):
    writing, killed = (tmp_path / f".client-0-{run}-000001.safetensors.0.tmp" for run in (NEXT, RUN))
    for path in (writing, killed):
        path.touch()
    save(tmp_path, moment(1), memory(1))
    assert writing.exists()
    assert not killed.exists()


def newest(path):
    return max(path.glob("client-0-*.safetensors"))


def torn(path):
    newest(path).write_bytes(newest(path).read_bytes()[:-8])


def with_lost_blocks(path):
    data = newest(path).read_bytes()
    newest(path).write_bytes(data[:-16] + bytes(16))


def foreign(path):
    save(path, moment(2), memory(50), client="client-1")
    shutil.copy(path / newest(path).name.replace("client-0", "client-1"), newest(path))


def of_another_round(path):
    shutil.copy(min(path.glob("client-0-*.safetensors")), newest(path))


def of_an_older_model(path):
    MemoryFolder(path, "older").pack("client-0", RUN, 2, memory(50)).write()


def no_safetensors(path):
    newest(path).write_bytes(b"\x80\x04pickle")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (torn, "cannot be read"),
        (with_lost_blocks, "the file is damaged"),
        (foreign, "its client is 'client-1'; expected 'client-0'"),
        (of_another_round, "its round is '1'; expected '2'"),
        (of_an_older_model, "it belongs to another model, client, objective or memory-name"),
        (no_safetensors, "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_trusted_is_refused_and_the_one_before_used(damage, reason, tmp_path, caplog):
    for r in (1, 2):
        save(tmp_path, moment(r), memory(r))
    assert remembered(tmp_path, moment(3)) == 2
    damage(tmp_path)
    with caplog.at_level(logging.WARNING, "flwr.fedbn"):
        assert remembered(tmp_path, moment(3)) == 1
    (line,) = (r.getMessage() for r in caplog.records if r.levelno == logging.WARNING)
    assert str(newest(tmp_path)) in line
    assert reason in line


@settings(max_examples=30)
@given(data=st.data())
def test_no_damage_to_a_byte_goes_unnoticed(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("state")
    save(path, moment(1), memory(1))
    content = bytearray(newest(path).read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    newest(path).write_bytes(content)
    assert remembered(path, moment(2)) in (None, 1)  # spaces that pad the header may change


@pytest.mark.parametrize(
    "run", [{"run": "../../etc"}, {"run": "20260101T000000000000-0000000g"}, {}, {"run": 3}]
)
def test_a_servers_words_do_not_become_a_path(run):
    with pytest.raises(ValueError, match="state-dir: the server sent .* as the run"):
        Moment.of(ConfigRecord({"server-round": 1, "checkpoint-round": 0} | run))


def test_a_memory_name_is_a_name(configured):
    for name in ("../x", ".", "", "a" * 65, "-x"):
        with pytest.raises(UserError, match="memory-name: (missing|.* is not allowed)"):
            configured(memory_name=name)


def test_what_was_trained_after_the_last_round_goes_when_the_run_is_complete(tmp_path):
    """Also the only file of a client that trained in no round that counts: then nothing is marked, as of a
    run in which it never trained."""
    folder = MemoryFolder(tmp_path)
    for client, rounds in (("client-0", (1, 2, 3)), ("client-1", (3,))):
        for number in rounds:
            folder.pack(client, RUN, number, memory(number)).write()
    assert complete(tmp_path, NEXT, 5) == complete(tmp_path, RUN, 5, client="client-2") == 0
    assert MemoryFolder(tmp_path).note_complete("client-0", RUN, 2) == 2
    assert MemoryFolder(tmp_path).note_complete("client-1", RUN, 2) == 1
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"client-0-{RUN}-000002.safetensors", f"client-0-{RUN}.complete"]
