"""A worker is for one node, run, configuration, version and code."""

import sys

from flwr.app import ConfigRecord, Context, RecordDict

from fedbn_flower.warm import workers

CHANGES = {
    "run": {"run_id": 8},
    "node": {"node_id": 6},
    "node config": {"node_config": {"partition-id": 2}},
    "run config": {"run_config": {"rounds": 3}},
}


def context(**changes):
    usual = {"run_id": 7, "node_id": 5, "node_config": {"partition-id": 1}, "run_config": {"rounds": 2}}
    return Context(**usual | changes, state=RecordDict())


def test_anything_else_is_another_one(monkeypatch):
    usual = workers.identity_of(context(), 10)
    found = [workers.identity_of(context(**change), 10) for change in CHANGES.values()]
    found.append(workers.identity_of(context(), 11))
    for place, name, value in (
        (workers, "__version__", "0.0.1"),
        (workers, "digest_of", lambda _: "other code"),
        (sys, "path", [*sys.path, "/elsewhere"]),
        (sys, "version", "4.0"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, value)
            found.append(workers.identity_of(context(), 10))
    assert len({usual, *found}) == len(CHANGES) + 6


def test_the_state_is_no_part_of_it():
    other = context()
    other.state["kept"] = ConfigRecord({"a": 1})
    assert workers.identity_of(other, 10) == workers.identity_of(context(), 10)


def test_the_code_is_what_is_in_its_files(tmp_path):
    (tmp_path / "sub").mkdir()
    digests = set()
    for name, text in (("a.py", "x = 1\n"), ("a.py", "x = 2\n"), ("sub/b.py", ""), ("sub/c.py", "")):
        (tmp_path / name).write_text(text)
        digests.add(workers.digest_of([tmp_path]))
    (tmp_path / "notes.txt").write_text("not code")
    assert workers.digest_of([tmp_path]) in digests
    (tmp_path / "sub/c.py").rename(tmp_path / "sub/d.py")
    digests.add(workers.digest_of([tmp_path]))
    assert len(digests) == 5
