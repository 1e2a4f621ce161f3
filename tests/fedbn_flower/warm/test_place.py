"""A worker's folder is its user's alone, and one door's at a time."""

import errno
import os
import subprocess
import sys
import tempfile

import pytest

from fedbn_flower.warm import place as module
from fedbn_flower.warm.place import NoWorker, Place, Record, make_private, places, remove_left_places

RECORD = Record(2**30, "digest", "00" * 32)
HOLD = """
import sys, time
from pathlib import Path
from fedbn_flower.warm.place import Place
place = Place(Path(sys.argv[1]))
if sys.argv[2] == "live":
    kept = place.live()
    print("holds", flush=True)
    time.sleep(600)
with place.reserved() as free:
    print("holds" if free else "does not", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "all" / "node")


@pytest.fixture
def held():
    """Starts a process that reserves a place, or lives in it; it ends with the test."""
    processes = []

    def start(place, how):
        command = [sys.executable, "-c", HOLD, str(place.folder), how]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        processes.append(process)
        assert process.stdout.readline() == "holds\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def mode(path):
    return path.stat().st_mode & 0o777


def test_only_its_user_may_enter_and_read(place):
    with place.reserved() as free:
        assert free
        place.write(RECORD)
    assert (mode(place.folder.parent), mode(place.folder)) == (0o700, 0o700)
    assert mode(place.folder / "worker.json") == 0o600
    assert place.record() == RECORD


@pytest.mark.parametrize("open_to_others", [0o750, 0o707, 0o701])
def test_a_folder_that_others_may_use_is_refused(tmp_path, open_to_others):
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(open_to_others)
    with pytest.raises(NoWorker, match=f"mode {open_to_others:o}"):
        make_private(folder)


def test_a_link_and_a_file_are_refused(tmp_path):
    (tmp_path / "real").mkdir(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").touch(0o600)
    for name in ("link", "file"):
        with pytest.raises(NoWorker, match="is not a folder"):
            make_private(tmp_path / name)


def test_another_users_folder_is_refused(tmp_path, monkeypatch):
    (tmp_path / "theirs").mkdir(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(NoWorker, match=f"belongs to user {os.getuid()}"):
        make_private(tmp_path / "theirs")


def test_a_place_that_cannot_be_made_says_why(tmp_path):
    nowhere = Place(tmp_path / "no" / "such" / "x")
    with pytest.raises(NoWorker, match="no folder for a worker"), nowhere.reserved():
        pass


@pytest.mark.parametrize("content", ["", "[]", '{"process": 1}'])
def test_a_record_that_cannot_be_read_is_none(place, content):
    with place.reserved():
        (place.folder / "worker.json").write_text(content)
        (place.folder / "worker.json").chmod(0o600)
        assert place.record() is None


def test_a_record_that_others_may_read_is_none(place):
    with place.reserved():
        place.write(RECORD)
        (place.folder / "worker.json").chmod(0o644)
        assert place.record() is None


def test_a_place_is_reserved_once_and_free_when_who_had_it_is_dead(place, held):
    process = held(place, "reserve")
    with place.reserved() as free:
        assert not free
    process.kill()
    process.wait()
    with place.reserved() as free:
        assert free
        with place.reserved() as again:
            assert not again
    with place.reserved() as free:
        assert free


def test_a_place_that_is_removed_meanwhile_is_not_reserved(place, monkeypatch):
    """A worker that ends removes it while a door opens it."""
    opened = Place._opened

    def removed(self):
        descriptor = opened(self)
        self.remove()
        return descriptor

    monkeypatch.setattr(Place, "_opened", removed)
    with place.reserved() as free:
        assert not free


def test_a_worker_lives_until_its_process_ends(place, held, monkeypatch):
    """One that does not end is no reason to start another."""
    with place.reserved():
        assert not place.lives()
        process = held(place, "live")
        assert place.lives()
        with pytest.raises(OSError, match="Resource temporarily unavailable|Permission denied"):
            place.live()
        with monkeypatch.context() as patch:
            patch.setattr(module, "END", 0.1)
            with pytest.raises(NoWorker, match="does not end"):
                place.kill()  # without a record of its process
        place.write(Record(process.pid, "digest", "00"))
        place.kill()
        assert process.wait() == -9
        assert not list(place.folder.iterdir())


def test_a_process_that_only_has_the_number_of_a_dead_worker_is_let_be(place):
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as innocent, place.reserved():
        place.write(Record(innocent.pid, "digest", "00"))
        place.kill()
        with pytest.raises(subprocess.TimeoutExpired):
            innocent.wait(0.05)
        assert place.record() is None
        innocent.kill()


def test_a_folder_that_takes_no_file_is_told_at_once(place, monkeypatch):
    """As on a disk that is full or may only be read: it is no worker that does not end."""

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with place.reserved():
        monkeypatch.setattr(module.os, "open", full)
        with pytest.raises(NoWorker, match=r"no file for a worker \(.*No space left on device\)"):
            place.kill()


def test_what_dead_workers_left_is_removed(place, held):
    live, busy, dead = (Place(place.folder.parent / name) for name in ("live", "busy", "dead"))
    for one in (live, busy, dead):
        with one.reserved():
            one.write(RECORD)
            (one.folder / "socket").touch()
    (place.folder.parent / "file").touch()
    held(live, "live")
    held(busy, "reserve")
    remove_left_places(place.folder.parent)
    assert {path.name for path in place.folder.parent.iterdir()} == {"live", "busy", "file"}


def test_places_are_of_the_session_or_temporary(tmp_path, monkeypatch):
    name = f"fedbn-{os.geteuid()}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert places() == tmp_path / name
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "gone"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    assert places() == tmp_path / "t" / name
