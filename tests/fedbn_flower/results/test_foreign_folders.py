"""Somebody else's folder: each command that takes one works, or says in a line why not; it hangs on none."""

import json
import os
import random
import shutil
import signal
from contextlib import suppress

import pytest

from fedbn_flower import Result, UserError, simulate
from fedbn_flower.annexes import is_present
from fedbn_flower.api import result as results
from fedbn_flower.cli import main, report_commands
from fedbn_flower.results.report import sections_of_a_run, write_report

from .written import METRICS, summary_of, write_run, write_sweep

DEEP = b'{"a":' * 20_000 + b"1" + b"}" * 20_000
HOSTILE = "be\x1b[2Jnign\u202e"
COMMANDS = {
    "report": lambda folder, place: ["report", folder],
    "compare": lambda folder, place: ["compare", folder, place / "whole", "--to", place / "to"],
    "methods": lambda folder, place: ["export", folder, "--to", "methods"],
    "model": lambda folder, place: ["export", folder, "--format", "torchscript", "--to", place / "model.pt"],
    "client": lambda folder, place: ["export", folder, "--client", "1", "--format", "torchscript"],
    "release": lambda folder, place: ["release", folder, "--to", place / "released"],
    "resume": lambda folder, place: ["--resume", folder, "--rounds", "2", "--backend", "inline"],
}


def put(key, value, file="config.json"):
    """Another value of a key."""

    def change(folder):
        found = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(found | {key: value}))

    return change


def content(file, data):
    return lambda folder: (folder / file).write_bytes(data)


def fifo(file):
    def change(folder):
        (folder / file).unlink()
        os.mkfifo(folder / file)

    return change


def folder_in_its_place(folder):
    (folder / "clients.csv").unlink()
    (folder / "clients.csv").mkdir()


TABLES = ("metrics.csv", "clients.csv", "partitions.csv")
REFUSED = {
    "deep JSON": content("config.json", DEEP),
    "no JSON": content("config.json", b"\0\xff"),
    "JSON without keys": content("config.json", b"[]"),
    "a pipe": fifo("config.json"),
    "a list for a name": put("model", ["mlp-bn"]),
    "a table for a number": put("rounds", {"a": 1}),
    "a number beyond all": put("client-lr", 10**400),
    "text for a number": put("local-epochs", "many"),
    "a deep value": put("partition", [[[]]]),
    "names that are none": put("client-names", ["a", None]),
}
"""What no command takes."""
DAMAGED = {
    "deep summary": content("summary.json", DEEP),
    "a pipe as summary": fifo("summary.json"),
    "clients that are none": put("clients", ["a"], "summary.json"),
    "a folder": folder_in_its_place,
    **{f"{name}, empty": content(name, b"") for name in TABLES},
    **{f"{name}, one cell": content(name, b"round\n" + b"9" * 200_000) for name in TABLES},
    **{f"{name}, other columns": content(name, b"a\x1b[2J,b\n1,2\n") for name in TABLES},
    **{f"{name}, a pipe": fifo(name) for name in (*TABLES, "predictions.parquet", "model.safetensors")},
    "no Parquet": content("predictions.parquet", b"PAR1"),
    "no weights": content("model.safetensors", b"\xff" * 16),
    "no checkpoint": content("checkpoint/server.safetensors", b"\xff" * 16),
    "a hostile name": put("client-names", [HOSTILE, HOSTILE]),
    "a hostile dataset": put("dataset", HOSTILE),
    "a hostile client": put("clients", {"0": {"name": HOSTILE, "loss": 1.0}}, "summary.json"),
}
"""What some commands do not read."""


@pytest.fixture(scope="module")
def made(tmp_path_factory, pictures_never_drawn, draws_always_few):
    """A run of two clients, and another one."""
    place = tmp_path_factory.mktemp("made")
    keys = {"dataset": "digits", "num_clients": 2, "rounds": 1, "model": "linear", "client": "shared"}
    simulate(**keys, backend="inline", run_dir=str(place / "run"), progress=False)
    write_run(place / "whole", summary_of([0.5, 0.6]), METRICS)
    return place


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    """Copies of them; what takes a minute hangs."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it hangs"))
    signal.alarm(60)
    yield tmp_path
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def outcome(words, capsys):
    """Exit status and what is printed; never a traceback, nor what a terminal would obey."""
    status = main([str(word) for word in words])
    printed = capsys.readouterr()
    assert not {"\x1b", "\u202e"} & {*printed.out, *printed.err}
    return status, printed.err


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_what_is_no_run_is_refused_by_every_command(place, capsys, change):
    change(place / "run")
    before = sorted(place.rglob("*"))
    for name, command in COMMANDS.items():
        status, error = outcome(command(place / "run", place), capsys)
        assert (status, error.count("\n")) == (2, 1), (name, error)
    with pytest.raises(UserError):
        Result(place / "run").model()
    assert sorted(place.rglob("*")) == before


@pytest.mark.sampled(8)
@pytest.mark.parametrize("change", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_run_is_read_or_refused_in_a_line(place, capsys, change):
    change(place / "run")
    for name, command in COMMANDS.items():
        status, error = outcome(command(place / "run", place), capsys)
        assert status == 0 or (status, error.count("\n")) == (2, 1), (name, error)
    for path in [*place.rglob("*.html"), *place.rglob("*.md")]:
        assert not {"\x1b", "\u202e"} & {*path.read_text()}, path
    for read in ("history", "clients", "summary", "predictions"):
        with suppress(UserError):
            getattr(Result(place / "run"), read)


def test_a_fault_of_a_section_of_ours_is_not_told_as_a_damaged_file_alone(tmp_path, monkeypatch, capsys):
    write_run(tmp_path / "run", summary_of([0.5, 0.6]), METRICS)
    monkeypatch.setitem(sections_of_a_run.SECTIONS, "Costs", len)
    monkeypatch.setattr(report_commands, "write_report", write_report)
    assert main(["report", str(tmp_path / "run")]) == 2
    said = "damaged, or this is a fault of fedbn-flower (TypeError: object of type 'Run' has no len(); "
    assert said in capsys.readouterr().err


VALUES = (None, [], {}, "", "\x1b[2J", -1, 1e400, "nan", [1], {"a": {}})


def damaged(content, rng):
    """Torn, with other bytes, without a part, empty, or JSON in which a value is of another type."""
    kind, size = rng.randrange(5), len(content)
    start, stop = sorted(rng.randrange(size + 1) for _ in range(2))
    if kind == 0:
        return content[:start]
    if kind == 1:
        changed = bytearray(content)
        for _ in range(4):
            changed[rng.randrange(size)] = rng.randrange(256)
        return bytes(changed)
    if kind == 2:
        return content[:start] + content[stop:]
    try:
        found = json.loads(content)
        found[rng.choice(list(found))] = rng.choice(VALUES)
        return json.dumps(found).encode()
    except ValueError:
        return content.replace(b",", b"", 1) if kind == 3 else content.replace(b"1", b"x", 3)


@pytest.mark.parametrize("count", [12, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.exhaustive])])
def test_a_damaged_folder_is_a_page_or_a_line(tmp_path, monkeypatch, capsys, count):
    monkeypatch.setattr(report_commands, "write_report", write_report)
    if is_present("study"):
        monkeypatch.setattr("fedbn_flower.study.compare.save_figure", lambda *_: None)
    write_run(tmp_path / "whole", summary_of([0.5, 0.6]), METRICS)
    shutil.copytree(tmp_path / "whole", tmp_path / "run")
    write_sweep(tmp_path / "sweep")
    rng = random.Random(f"46 {count}")
    for number in range(count):
        place = tmp_path / str(number)
        shutil.copytree(tmp_path / rng.choice(("run", "sweep")), place)
        file = rng.choice(sorted(path for path in place.rglob("*") if path.is_file()))
        file.write_bytes(damaged(file.read_bytes(), rng))
        for arguments in (["report", place], ["compare", place, tmp_path / "whole", "--to", place / "to"]):
            status = main([str(argument) for argument in arguments])
            error = capsys.readouterr().err
            assert (status, error.count("\n")) in ((0, 0), (2, 1)), (file, error)
            assert "\x1b" not in error


APP, OURS = "holds a Flower app's run; expected the folder of", "a run, a sweep or a search"
EVERY = "a run, a sweep, a search or a Flower app's run"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["compare", "app", "whole"], "compare: 'app/config.json' cannot be read (version: Field required)"),
        (["--resume", "app"], f"resume: 'app' {APP} {OURS}"),
        (["export", "app", "--to", "model-card"], f"export: 'app' {APP} a run"),
        (["release", "app", "--to", "new"], f"release: 'app' {APP} a run"),
        (["report", "earlier-app"], "report: 'earlier-app' is of version 0.2, with history.csv; run the app"),
        (["report", "nobodys"], f"report: 'nobodys' is not the folder of {EVERY}"),
        (["--resume", "nobodys"], f"resume: 'nobodys' is not the folder of {OURS}"),
        (["export", "sweep"], "export: 'sweep' holds a sweep; expected the folder of a run"),
        (["report", "begun"], "report: 'begun' is not allowed; expected a sweep of which a run"),
    ],
)
def test_a_folder_of_another_kind_is_named(tmp_path, monkeypatch, refused, words, line):
    if words[0] in ("report", "compare") and words[1].endswith("app"):
        pytest.importorskip("fedbn_flower.apps")
    monkeypatch.chdir(tmp_path)
    for name in ("app", "earlier-app", "nobodys", "begun"):
        (tmp_path / name).mkdir()
    app = {"app": "a/b", "run-config": {}, "overrides": {}}
    (tmp_path / "app" / "config.json").write_text(json.dumps({"folder-of": "app"} | app))
    (tmp_path / "earlier-app" / "config.json").write_text(json.dumps(app))
    (tmp_path / "earlier-app" / "history.csv").write_text("round,train-loss\n1,0.5\n")
    (tmp_path / "nobodys" / "config.json").write_text('{"a": 1}')
    (tmp_path / "begun" / "experiment.json").write_text("{}")
    write_run(tmp_path / "whole", summary_of([0.5]), METRICS)
    write_sweep(tmp_path / "sweep")
    assert refused(*words).startswith(line)
    assert [path.name for path in (tmp_path / "nobodys").iterdir()] == ["config.json"]
    with pytest.raises(UserError, match="holds a Flower app's run"):
        results.Result("app")


def test_no_key_asks_for_more_runs_than_there_can_be(refused):
    pytest.importorskip("fedbn_flower.sweeps")
    line = refused("--dataset", "digits", "--folds", "1000000000000000", "--dry-run")
    assert line.startswith("folds: '1000000000000000' is not allowed; expected at")
