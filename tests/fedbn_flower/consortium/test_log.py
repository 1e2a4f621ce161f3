"""Studies that a site admits, and its log of what left: every change of it is found."""

import math
import os
import resource
import signal
import sys
import tomllib

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from fedbn_flower import client_app
from fedbn_flower.cli import main
from fedbn_flower.consortium import log, studies
from fedbn_flower.consortium.log import append, checked
from fedbn_flower.consortium.studies import run_digest, study_digest
from fedbn_flower.core.errors import UserError
from fedbn_flower.core.ground import wire
from fedbn_flower.runtime.grid import identify_process, node_context
from fedbn_flower.site import queries

from ...integration.processes import ROOT

STUDY = 'dataset = "digits"\nrounds = 3\nclient-lr = 1\nrun-dir = "runs/first"\n'
APP = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]


@pytest.fixture
def study(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path / "study.toml"


def test_a_run_has_the_digest_of_its_study(study):
    """The app's defaults, where its results go, and 1 or 1.0 change nothing; every other key does."""
    keys = tomllib.loads(STUDY)
    digest = study_digest(study)
    assert run_digest(APP | keys) == digest
    assert run_digest(APP | keys | {"run-dir": "elsewhere", "client-lr": 1.0}) == digest
    changes = {
        "rounds": 4,
        "dp": "none",
        "inspect": True,
        "client-lr": 0.5,
        "memory-name": "second",
        "mu": 0.1,
    }
    found = {key: run_digest(APP | keys | {key: value}) == digest for key, value in changes.items()}
    assert found == {key: key == "dp" for key in changes}


def test_other_code_is_another_study(study, tmp_path, monkeypatch):
    digest = study_digest(study)
    own = tmp_path / "own.py"
    own.write_text("class Rule: ...\n")
    named = {"strategy": f"{own}:Rule"}
    before = run_digest(named)
    own.write_text("class Rule: pass\n")
    assert run_digest(named) != before
    for name in ("absent.py:Rule", "absent.rule:Rule"):
        with pytest.raises(UserError, match="study: there is no 'absent"):
            run_digest({"strategy": name})
    (tmp_path / "own_study").mkdir()
    monkeypatch.chdir(tmp_path)
    packaged = []
    for text in ("a = 1\n", "a = 2\n"):
        (tmp_path / "own_study" / "model.py").write_text(text)
        packaged.append(run_digest({"strategy": "own_study.rule:Rule"}))
    assert packaged[0] != packaged[1]
    monkeypatch.setattr(studies, "code_digest", lambda: "0" * 64)
    assert study_digest(study) != digest


def test_the_digest_is_of_all_code(tmp_path, monkeypatch):
    folder = tmp_path / "fedbn_flower"
    folder.mkdir()
    monkeypatch.setattr(studies.packages, "HERE", folder)
    found = set()
    for text in ("a = 1\n", "a = 2\n", "a = 2\n"):
        (folder / "a.py").write_text(text)
        found.add(studies.code_digest.__wrapped__())
    assert len(found) == 2


@pytest.mark.parametrize("text", ["rounds = [1, 2]\n", "[data]\nrounds = 1\n", "rounds =\n"])
def test_a_study_is_one_run(text, tmp_path):
    (tmp_path / "study.toml").write_text(text)
    with pytest.raises(UserError):
        study_digest(tmp_path / "study.toml")


def asked(site, **config):
    """A train message for a node, and the node."""
    identify_process()
    node = node_context(1, 2, APP | tomllib.loads(STUDY))
    node.node_config |= site
    message = Message(RecordDict({wire.CONFIG: ConfigRecord(config)}), node.node_id, "train")
    return message, node


def answer(message, context):
    model = ArrayRecord({"w": Array(np.zeros(10, dtype=np.float32))})
    return Message(RecordDict({"arrays": model, "metrics": MetricRecord({"loss": 0.25})}), reply_to=message)


def test_a_site_answers_runs_of_admitted_studies_alone(study, tmp_path, caplog):
    admitted, folder = tmp_path / "studies", tmp_path / "audit"
    site = {"studies": str(admitted), "audit": str(folder)}
    admitted.write_text(f"{'0' * 64} another\n")
    refused = queries.answered(*asked(site, **{wire.SERVER_ROUND: 2}), answer)
    assert refused.error.reason.startswith(
        f"studies: this site has not admitted the study {study_digest(study)}"
    )
    assert caplog.messages == [f"refused: {refused.error.reason}"]
    admitted.write_text(f"{'0' * 64} another\n{study_digest(study)} first\n")
    assert queries.answered(*asked(site, **{wire.SERVER_ROUND: 3}), answer).has_content()
    first, second = checked(folder)
    assert (first["outcome"], first["round"], first["left"]["error"][0]) == ("refused: studies", 2, "text")
    assert (second["outcome"], second["round"], second["asked"]) == ("answered", 3, "train")
    assert second["left"]["arrays"] == ["ArrayRecord", len(Array(np.zeros(10, dtype=np.float32)).data)]
    assert second["study"] == study_digest(study)
    assert "0.25" not in (folder / "audit.jsonl").read_text()


@pytest.mark.parametrize(
    ("bound", "key"), [({"secagg-required": True}, "secagg"), ({"dp-required": "local"}, "dp")]
)
def test_a_run_beyond_a_bound_is_refused_and_stands_in_the_log(bound, key, study, tmp_path):
    (tmp_path / "studies").write_text(f"{study_digest(study)} first\n")
    site = {"studies": str(tmp_path / "studies"), "audit": str(tmp_path / "audit"), **bound}
    reason = client_app.app(*asked(site, **{wire.SERVER_ROUND: 1})).error.reason
    assert reason.startswith(f"{key}: ")
    (line,) = checked(tmp_path / "audit")
    left = {"error": ["text", len(reason)]}
    assert (line["outcome"], line["round"], line["left"]) == (f"refused: {key}", 1, left)


def test_every_message_passes_the_owners_doors(tmp_path):
    """Also queries, before the run is read."""
    (tmp_path / "studies").write_text("")
    _, node = asked({"studies": str(tmp_path / "studies")})
    message = Message(RecordDict(), node.node_id, wire.QUERY_PARTITION_ID)
    assert client_app.app(message, node).error.reason.startswith("studies: ")


def test_what_cannot_be_read_or_written_is_no_answer(tmp_path):
    (tmp_path / "studies").write_text("first\n")
    with pytest.raises(UserError, match="studies: 'first' is not allowed"):
        queries.answered(*asked({"studies": str(tmp_path / "studies")}), answer)
    with pytest.raises(UserError, match="studies: cannot read"):
        queries.answered(*asked({"studies": str(tmp_path / "absent")}), answer)
    with pytest.raises(UserError, match="audit: cannot write"):
        queries.answered(*asked({"audit": str(tmp_path / "studies")}), answer)


def test_errors_leave_no_value_in_the_log(tmp_path):
    def failing(message, context):
        raise ValueError("patient 4711")

    def failed(message, context):
        return Message(Error(1, "Patient 4711: no number"), reply_to=message)

    site = {"audit": str(tmp_path / "audit")}
    with pytest.raises(ValueError, match="4711"):
        queries.answered(*asked(site), failing)
    queries.answered(*asked(site), failed)
    assert [line["outcome"] for line in checked(tmp_path / "audit")] == ["ValueError", "failed"]
    assert "4711" not in (tmp_path / "audit" / "audit.jsonl").read_text()


def test_epsilon_is_that_of_the_ledger(tmp_path):
    (tmp_path / "privacy").mkdir()
    assert log.spent({"state-dir": str(tmp_path)}) == 0
    ledger = tmp_path / "privacy" / "data.jsonl"
    ledger.write_text('{"epsilon": 0.5}\n{"epsilon": 1.5}\n')
    assert log.spent({"state-dir": str(tmp_path)}) == 1.5
    ledger.write_text('{"epsilon": null}\n')
    assert log.spent({"state-dir": str(tmp_path)}) == math.inf


LINE = {
    "when": "2026-01-01T00:00:00+00:00", "run": "7", "study": "ab" * 32, "round": 1, "asked": "train",
    "outcome": "answered", "left": {"arrays": ["ArrayRecord", 40]}, "epsilon": 0.0,
}  # fmt: skip


@pytest.fixture
def written(tmp_path):
    for number in range(4):
        append(tmp_path, {**LINE, "round": number})
    return tmp_path


def test_the_command_tells_the_log(written, capsys):
    append(written, {**LINE, "asked": "query.complete", "left": {}})
    assert main(["audit", str(written)]) == 0
    told = capsys.readouterr().out
    assert "0-3" in told
    assert "arrays (ArrayRecord) 160" in told
    assert "query.complete: answered 1 time; bytes that left: 0; " in told
    assert f"5 lines, none changed; the last hash is {(written / 'head').read_text().split()[1]}" in told


CHANGES = {
    "changed": lambda lines: [lines[0], lines[1].replace('"round": 1', '"round": 9'), *lines[2:]],
    "a size": lambda lines: [lines[0].replace("40]", "4]"), *lines[1:]],
    "taken out": lambda lines: lines[:1] + lines[2:],
    "the first taken out": lambda lines: lines[1:],
    "the last taken out": lambda lines: lines[:-1],
    "added": lambda lines: [*lines[:2], lines[1], *lines[2:]],
    "added at the end": lambda lines: [*lines, lines[-1]],
    "a part added": lambda lines: [*lines, "{"],
    "two swapped": lambda lines: [lines[1], lines[0], *lines[2:]],
    "all": lambda lines: [],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_log_is_found(change, written, capsys):
    path = written / "audit.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{line}\n" for line in CHANGES[change](lines)))
    assert main(["audit", str(written)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: audit: ")
    assert error.count("\n") == 1


def test_nothing_is_added_to_a_log_that_was_cut(written):
    path = written / "audit.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(UserError, match="not as it was left"):
        append(written, LINE)


@pytest.mark.parametrize("kept", [0, 1, 4])
def test_nothing_is_added_to_a_log_without_its_head(kept, written, capsys):
    """Not to its first line either, which is how it would look after a kill."""
    path = written / "audit.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:kept]))
    (written / "head").unlink()
    with pytest.raises(UserError, match="not as it was left"):
        append(written, LINE)
    assert main(["audit", str(written)]) == 2
    assert "head' was changed or taken out" in capsys.readouterr().err


@pytest.mark.parametrize("file", ["head", "audit.jsonl"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\n", b"4\n", b"{}\n\n"])
def test_a_damaged_file_of_the_log_is_one_line(file, content, written, capsys):
    (written / file).write_bytes(content)
    assert main(["audit", str(written)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(UserError, match="not as it was left"):
        append(written, LINE)


@pytest.mark.parametrize("between", ["\r\n", "\v", "\u2028"])
def test_another_end_of_a_line_is_a_change(between, written):
    path = written / "audit.jsonl"
    path.write_bytes(path.read_text().replace("\n", between, 1).encode())
    with pytest.raises(UserError, match="audit: "):
        checked(written)


def test_a_line_that_a_full_disk_or_a_kill_cut_off_is_no_line(written, monkeypatch):
    """Nothing has left with it: the next answer takes its place, once there is room."""
    path = written / "audit.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"when": "20')
    append(written, LINE)
    assert len(checked(written)) == 5
    path.write_bytes(path.read_bytes()[:-1])  # the end of a line that was written is none that was cut off
    with pytest.raises(UserError, match="not as it was left"):
        append(written, LINE)


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path):
    """The limit of a file's size stands for the end of a disk: a write comes back with a part."""
    append(tmp_path, LINE)
    before = (tmp_path / "audit.jsonl").read_bytes()
    if (pid := os.fork()) == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, -1))
        try:
            append(tmp_path, LINE)
        except UserError as error:
            os._exit(0 if "cannot write" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert (tmp_path / "audit.jsonl").read_bytes() == before
    append(tmp_path, LINE)
    assert len(checked(tmp_path)) == 2


@pytest.mark.parametrize("rest", ["", '{"when": "20'])
def test_what_a_kill_has_left_bars_no_start(rest, written):
    """A SuperNode starts where the doctor finds nothing; the first answer mends this."""
    head = (written / "head").read_text()
    append(written, LINE)
    (written / "head").write_text(head)
    with (written / "audit.jsonl").open("a") as file:
        file.write(rest)
    with pytest.raises(UserError, match="the last were added"):
        checked(written)
    assert len(checked(written, after_a_kill=True)) == 5
    (written / "head").write_text(f"4 {'0' * 64}\n")
    with pytest.raises(UserError, match="audit: "):
        checked(written, after_a_kill=True)


def test_a_kill_between_a_line_and_the_head_is_mended(written):
    head = (written / "head").read_text()
    append(written, LINE)
    (written / "head").write_text(head)
    append(written, LINE)
    assert len(checked(written)) == 6


def test_two_processes_write_one_log(tmp_path):
    pids = []
    for number in range(2):
        if (pid := os.fork()) == 0:
            for _ in range(5):
                append(tmp_path, {**LINE, "run": str(number)})
            os._exit(0)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0]
    assert sorted(line["run"] for line in checked(tmp_path)) == ["0"] * 5 + ["1"] * 5


def test_a_folder_without_a_log_is_one_line(tmp_path, capsys):
    assert main(["audit", str(tmp_path)]) == 2
    assert "has no log of a site" in capsys.readouterr().err


def test_a_site_that_demands_nothing_does_not_load_it(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("fedbn_flower.consortium")]:
        monkeypatch.delitem(sys.modules, name)
    assert queries.answered(*asked({}), answer).has_content()
    assert "fedbn_flower.consortium.log" not in sys.modules


@pytest.mark.parametrize("key", ["studies", "audit"])
def test_without_this_folder_a_site_that_demands_it_answers_nothing(key, monkeypatch):
    monkeypatch.setattr(queries.annexes, "is_present", lambda name: name != "consortium")
    with pytest.raises(UserError, match=f"{key}: .* fedbn_flower/consortium, which is not there"):
        queries.answered(*asked({key: "x"}), answer)


def test_a_message_that_a_worker_answers_is_one_line(tmp_path, monkeypatch):
    """The door of the node's own process asks the worker, whose app has the same doors."""
    in_worker = []

    def ask_worker(message, context, here):
        if in_worker:
            return here(message, context)
        in_worker.append(True)
        return queries.answered(message, context, answer)

    monkeypatch.setattr(queries.annexes, "brought", lambda kind: {"warm": ask_worker})
    queries.answered(*asked({"audit": str(tmp_path / "audit")}), answer)
    assert len(checked(tmp_path / "audit")) == 1
