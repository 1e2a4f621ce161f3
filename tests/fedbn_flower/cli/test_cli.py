"""The command: its help, its list, its exit status, its door."""

import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections import Counter
from contextlib import suppress

import pytest

from fedbn_flower import annexes, cli
from fedbn_flower.cli import command, jobs
from fedbn_flower.cli.parser import parse
from fedbn_flower.config.help import first_line
from fedbn_flower.config.named_algorithms import EXTENSION
from fedbn_flower.core.errors import UserError
from fedbn_flower.core.methods import GROUPS, PURPOSES, paper_of, purposes_of
from fedbn_flower.data.partition.spec import PartitionSpec
from fedbn_flower.extensions.annex_keys import ATTACKS
from fedbn_flower.models.named import MODEL, NORM
from fedbn_flower.names import APP, CLIENT, COMPRESS, LOSS, METRIC, OBJECTIVE, PROBLEM, SELECTION, STRATEGY
from fedbn_flower.results.progress import RoundLines
from fedbn_flower.results.report.citations import authors_and_year
from fedbn_flower.results.run_directory import default_run_folder
from fedbn_flower.strategies.aggregation.buffers import PROTOCOLS
from fedbn_flower.strategies.aggregation.named_means import MEANS

from ..results.written import csv_rows


def help_of(capsys, arguments):
    """Section title -> the flags in it."""
    with pytest.raises(SystemExit) as ended:
        parse([*arguments.split(), "--help", "all"])
    assert ended.value.code == 0
    sections, title = {}, ""
    for line in capsys.readouterr().out.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            title = line[:-1]
        elif line.startswith("  --"):
            sections.setdefault(title, []).append(line.split()[0])
    return sections


def test_help_shows_what_belongs_to_the_named_algorithms_first(capsys):
    pytest.importorskip("fedbn_flower.sweeps")
    sections = help_of(capsys, "--strategy feddyn --objective fedprox,feddyn")
    titles = list(sections)
    assert titles[1:4] == ["strategy feddyn", "objective fedprox", "Every strategy"]
    assert sections["strategy feddyn"] == ["--alpha"]  # and not again under the objective
    assert sections["objective fedprox"] == ["--mu"]
    assert "--mean" in sections["Every strategy"]
    assert titles[-1] == "Settings of other algorithms"
    assert {"--tau", "--beta-2", "--server-lr"} <= set(sections[titles[-1]])
    assert "--rounds" in sections["What runs"]
    flags = [flag for section in sections.values() for flag in section]
    assert len(set(flags)) == len(flags)


def test_help_knows_the_settings_of_a_file(capsys):
    sections = help_of(capsys, "--strategy examples/signsgd.py:SignSGD")
    assert sections["strategy signsgd.SignSGD"] == ["--server-lr", "--decay"]


def shown_by(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        parse([*arguments])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_begins_with_what_one_runs_first_then_commands_then_topics(capsys):
    text = shown_by(capsys, "--strategy", "feddyn", "--objective", "feddyn", "--help")
    places = [text.index(word) for word in ("what to run first:", "commands:", "topics:", "--help TOPIC")]
    assert places == sorted(places)
    assert len(text.splitlines()) < 60
    shown = re.findall(r"([a-z]+) [A-Z]", text[places[1] : places[2]])
    assert sorted(shown) == sorted([*command.COMMANDS, *annexes.names_of("commands")])
    first, *_ = text[places[2] :].splitlines()[1:]
    assert first.split() == ["strategy-feddyn", "alpha"]


def test_help_shows_the_keys_of_a_topic_or_one_key(capsys):
    text = shown_by(capsys, "--help", "privacy")
    assert "--dp-epsilon VALUE" in text
    assert "--rounds" not in text
    assert shown_by(capsys, "--help", "rounds").split()[:2] == ["--rounds", "VALUE"]
    with pytest.raises(UserError, match="help: unknown name 'evaluaton' .did you mean 'evaluation'"):
        parse(["--help", "evaluaton"])


KINDS = (STRATEGY, CLIENT, OBJECTIVE, LOSS, PROBLEM, METRIC, MODEL, NORM, SELECTION, COMPRESS, EXTENSION)


NAMES = {registry.key: registry.names for registry in KINDS} | {
    "mean": MEANS,
    "protocol": PROTOCOLS,
    "attack": ATTACKS,
}


def sections(text):
    """What ``--list`` printed: by heading, or without one by kind, its lines."""
    found = {}
    for block in text.rstrip().split("\n\n"):
        title, colon, _ = block.partition(":")
        rows = block.splitlines()
        found[title if colon and title in PURPOSES else rows[0].split()[0]] = rows[title in PURPOSES :]
    return found


def test_every_name_is_listed_with_a_line_on_it_once_for_each_purpose(capsys):
    assert cli.main(["--list", "--long"]) == 0
    text = capsys.readouterr().out
    *lines, union, dataset, partition = [row for rows in sections(text).values() for row in rows]
    expected = {
        (kind, name): first_line(algorithm).replace("``", "").removesuffix(".")
        for kind, names in NAMES.items()
        for name, algorithm in names.items()
    }
    for line in lines:
        kind, name, words = line.split(maxsplit=2)
        assert words.startswith(expected[kind, name])
        described = NAMES[kind][name]
        assert not paper_of(described) or authors_and_year(paper_of(described)) in words
    listed = Counter(tuple(line.split(maxsplit=2)[:2]) for line in lines)
    assert listed == {(kind, name): len(purposes_of(NAMES[kind][name])) or 1 for kind, name in expected}
    assert "objective  plain             The loss f without further terms, whatever the optimiser." in lines
    assert len({len(line) - len(line.split(maxsplit=2)[2]) for line in lines}) == 1  # straight columns
    assert union.startswith("client     NAME+NAME: ")
    assert dataset.startswith("dataset    scanners and digits (embedded)")
    assert partition == f"partition  {PartitionSpec.FORMS}"


def test_the_list_alone_says_where_to_begin_names_everything_and_how_to_go_on(capsys):
    assert cli.main(["--list"]) == 0
    first, names, more = capsys.readouterr().out.split("\n\n")
    assert first.startswith("baseline: where to begin")
    assert "strategy   fedavg" in first
    every = {kind for names in NAMES.values() for kind in names}
    assert every <= {*re.split(r"[\s,]+", names)}
    assert max(map(len, names.splitlines())) <= 100
    assert "--list label-skew" in more
    assert [*PURPOSES] == more.rsplit(": ")[-1].strip().split(", ")


def test_the_short_list_says_what_a_method_is_for(capsys):
    assert cli.main(["--list", "all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        "objective  fedprox           Keeps a client near the global model: label skew, unequal work "
        "(Li et al. 2020)." in lines
    )
    formulas = [
        line
        for line in lines
        if line.startswith(("strategy ", "client ", "objective ", "loss ")) and "=" in line
    ]
    assert formulas == []


def listed(capsys, *words):
    """The heading and the names of each section that ``--list`` shows for some words."""
    assert cli.main(["--list", *words]) == 0
    found = sections(capsys.readouterr().out)
    return {title: [tuple(row.split()[:2]) for row in rows] for title, rows in found.items()}


def test_the_list_of_a_kind_a_purpose_a_group_and_a_name(capsys):
    fair = {("client", "ditto")}
    assert fair <= {*listed(capsys, "fairness")["fairness"]}
    hostile = listed(capsys, "hostile-clients")
    assert [*hostile] == ["hostile-clients"]
    assert {("mean", name) for name in MEANS if name != "weighted"} <= {*hostile["hostile-clients"]}
    strategies = {row for rows in listed(capsys, "Strategy").values() for row in rows}
    assert strategies == {("strategy", name) for name in STRATEGY.names}
    both = listed(capsys, "heterogeneity", "client")
    assert {*both} <= {*GROUPS["heterogeneity"]}
    assert {kind for rows in both.values() for kind, _ in rows} == {"client"}
    assert {("client", "silobn"), ("client", "fedbn")} <= {*both["feature-shift"]}
    assert listed(capsys, "dice") == {"rare-classes": [("loss", "dice")], "metrics": [("metrics", "dice")]}
    assert [*listed(capsys, "partition")] == ["partition"]
    assert cli.main(["--list=fedprox", "--rounds", "3"]) == 0
    assert [*sections(capsys.readouterr().out)] == ["label-skew", "unequal-work"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["labelskew"], "list: unknown name 'labelskew' (did you mean 'label-skew'?); expected one of "),
        (["client", "metrics"], "list: 'client metrics' is not allowed; nothing is all of these"),
    ],
)
def test_a_word_that_lists_nothing_is_one_line(refused, words, message):
    line = refused("--list", *words)
    assert line.startswith(message)
    assert "label-skew" not in message or {*PURPOSES, *GROUPS, *NAMES} <= {*re.findall(r"[a-z-]+", line)}


def test_the_version(capsys):
    assert cli.main(["--version"]) == 0
    output = capsys.readouterr().out
    assert re.fullmatch(r"fedbn-flower \d+\.\d+\.\d+ \(Python 3\.\S+, flwr \S+, torch \S+\)\n", output)


@pytest.mark.slow
def test_the_installed_command_is_main(tmp_path):
    """What a console script does, in a process of its own in a folder that is not the checkout."""
    scripts = tomllib.loads((APP / "pyproject.toml").read_text())["project"]["scripts"]
    module, function = scripts["fedbn-sim"].split(":")
    code = f"import sys; sys.path[0] = {str(APP)!r}; from {module} import {function}; sys.exit({function}())"
    command = [sys.executable, "-c", code, "--strategy", "fedyog"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 2
    assert result.stderr.startswith("error: strategy: unknown name 'fedyog' (did you mean 'fedyogi'?)")


def test_a_python_without_the_packages_is_one_line():
    ended = subprocess.run(
        [sys.executable, "-S", APP / "run_sim.py"], capture_output=True, text=True, timeout=60
    )
    remedy = "run it with .venv/bin/python, or install them"
    assert (ended.returncode, ended.stdout) == (2, "")
    lacks, install = (
        f"{sys.executable} lacks the packages of fedbn-flower",
        f"{sys.executable} -m pip install -e",
    )
    assert ended.stderr == f"error: {lacks}; {remedy}: {install} {APP.resolve()}\n"


@pytest.mark.slow
@pytest.mark.parametrize("word", ["--version", "--list"])  # less than a buffer, and more
def test_output_that_nobody_reads_any_more_ends_it_quietly(word):
    """As behind ``| head``, which has left."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as pipe:
        result = subprocess.run(
            [sys.executable, APP / "run_sim.py", word],
            stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=120,
        )  # fmt: skip
    assert (result.returncode, result.stderr) == (1, "")


def test_another_broken_pipe_is_no_quiet_end(monkeypatch):
    def broken(*_, **__):
        raise BrokenPipeError("a worker's")

    monkeypatch.setattr(command, "_main", broken)
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    with pytest.raises(BrokenPipeError, match="a worker's"):
        cli.main()


@pytest.fixture
def inline(cache_dir, monkeypatch, tmp_path):
    """The flags of a short run in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    small = "--backend inline --rounds 3 --local-epochs 1 --batch-size 128"
    return [*small.split(), "--cache-dir", str(cache_dir)]


def test_without_a_terminal_a_run_is_plain_lines_and_names_its_folder_first(inline, capsys):
    assert cli.main(inline) == 0
    first, *others = capsys.readouterr().out.splitlines()
    rounds = [line for line in others if ": round " in line]
    assert len(rounds) == 3
    folder = re.fullmatch(r"results go to (runs/\d{8}-\d{6})", first)[1]
    shape = r"fedyogi-fedbn-plain-seed0: round {}/3  accuracy \d+\.\d %  loss \d\.\d{{3}}  \d+\.\d s"
    for number, line in enumerate(rounds, start=1):
        assert re.fullmatch(shape.format(number), line)
    figures = [
        f"accuracy {float(r['accuracy']):.1%}  loss {float(r['loss']):.3f}"
        for r in csv_rows(f"{folder}/metrics.csv")
    ]
    assert all(text.replace("%", " %") in line for text, line in zip(figures, rounds, strict=True))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("grid", [False, True])
def test_what_an_interrupted_run_says_goes_on_with_it(inline, capsys, monkeypatch, grid):
    def interrupt(self, result):
        if result.server_round == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["some where/run_sim.py"])
    with monkeypatch.context() as patched:
        patched.setattr(RoundLines, "on_round", interrupt)
        chosen = ["--strategy", "fedavg,fedyogi" if grid else "fedyogi", "--run-dir", "a run"]
        assert cli.main([*inline, *chosen]) == 130
    output = capsys.readouterr().err
    assert output == (
        "interrupted; what was done so far is in a run; "
        "to go on with it: python 'some where/run_sim.py' --resume 'a run'\n"
    )
    assert cli.main(shlex.split(output)[-2:]) == 0
    cells = ("fedavg-fedbn-plain-seed0", "fedyogi-fedbn-plain-seed0") if grid else ("",)
    for cell in cells:
        assert [row["round"] for row in csv_rows(f"a run/{cell}/metrics.csv")] == ["1", "2", "3"]


def test_an_interruption_before_anything_was_done_names_no_folder(inline, capsys, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs, "simulate", interrupt)
    assert cli.main(inline) == 130
    assert capsys.readouterr().err == "interrupted before the first round\n"


def test_runs_of_one_second_have_a_folder_each(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "strftime", lambda _: "20260102-030405")
    names = [str(default_run_folder(tmp_path).relative_to(tmp_path)) for _ in range(3)]
    assert names == ["runs/20260102-030405", "runs/20260102-030405-2", "runs/20260102-030405-3"]


def test_no_folder_can_be_made_where_a_file_is(tmp_path):
    (tmp_path / "runs").write_text("mine")
    with pytest.raises(UserError, match=r"^run-dir: cannot create '.*/runs/.*' \(Not a directory\)$"):
        default_run_folder(tmp_path)


@pytest.mark.slow
def test_nobody_evaluates_is_said_once_and_in_our_words(inline, caplog):
    assert cli.main([*inline, "--fraction-evaluate", "0"]) == 0
    assert [r.message for r in caplog.records if r.levelname == "WARNING"] == [
        "fraction-evaluate: 0.0 asks no client, and the server lacks what client 'fedbn' keeps at home: "
        "nothing is evaluated"
    ]


LIBRARIES = {"ray", "matplotlib", "datasets", "sklearn", "torchvision", "torch", "pandas", "scipy", "pyarrow"}
LIBRARIES |= {"dp_accounting"}
MISTAKES = (
    ["--rouns", "3"],
    ["--client-lr", "-3"],
    ["--tau", "1", "--strategy", "fedavg"],
    ["--dataset", "./nowhere"],
)


def test_names_help_a_mistake_and_the_api_import_nothing_that_only_runs_need(tmp_path):
    code = (
        f"import sys; sys.path[0] = {str(APP)!r}; import fedbn_flower\n"
        "assert not {'torch', 'ray', 'flwr', 'numpy'} & sys.modules.keys(); fedbn_flower.simulate\n"
        f"from fedbn_flower import cli; print([cli.main(arguments) for arguments in {MISTAKES!r}])\n"
        "cli.main(['--list'])\n"
        "try: cli.main(['--help'])\n"
        f"finally: print({LIBRARIES!r} & sys.modules.keys())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    lines = result.stdout.splitlines()
    assert (lines[0], lines[-1]) == (str([cli.command.USER_ERROR] * len(MISTAKES)), "set()"), result.stderr


def test_one_signal_ends_a_run_and_another_comes_only_where_the_first_was_lost():
    """Lost, as in a destructor; not in what the ending does, however deep."""
    with pytest.raises(KeyboardInterrupt):
        command._interrupt(2, None)
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        command._interrupt(2, None)
        with suppress(OSError):
            try:
                raise OSError
            except OSError:
                command._interrupt(15, None)
    with pytest.raises(KeyboardInterrupt):
        command._interrupt(2, None)


@pytest.mark.parametrize(("word", "near"), [("reprot", " (did you mean 'report'?)"), ("surplus", "")])
def test_an_unknown_command_is_one_line(refused, word, near):
    assert refused(word, "runs/a") == f"{word}: unknown command{near}; see --help"
