"""What ``--search`` may be: every mistake is one line, before anything starts."""

import pytest

from fedbn_flower.cli.parser import Job, parse_command_line
from fedbn_flower.core.errors import UserError
from fedbn_flower.search.search import parse_space

ADAM = ("--strategy", "fedadam")


def searched(*arguments):
    return search_of([*ADAM, *arguments])


def search_of(arguments):
    (search,) = parse_command_line(arguments).args
    return search


def test_ranges_of_numbers_and_choices():
    search = searched(
        *("--search", "server-lr=1e-3..1", "--search", "batch-size=8..64", "--trials", "7"),
        *("--search", "client-optimizer=sgd,adam", "--search", "client-lr=.1;.01"),
    )
    assert search.trials == 7
    rate, size, optimizer, client_rate = search.space
    assert (rate.low, rate.high, rate.whole) == (0.001, 1.0, False)
    assert (size.low, size.high, size.whole) == (8, 64, True)
    assert optimizer.choices == ("sgd", "adam")
    assert client_rate.choices == (".1", ".01")
    assert [str(s) for s in search.space] == ["0.001..1.0", "8..64", "sgd,adam", ".1,.01"]
    assert [s.parse(text) for s, text in zip(search.space, ["0.5", "16", "adam", ".1"], strict=True)] == [
        0.5, 16, "adam", ".1",
    ]  # fmt: skip


def test_a_number_or_a_word_has_a_range():
    private = {"dp": "client", "dp-noise": 1.0, "dp-delta": 1e-3, "num-clients": 60, "partition": "iid"}
    (clip,) = parse_space(["dp-clip=0.1..10"], private)
    assert clip.ends == (0.1, 10.0)


def test_both_ends_of_every_range_are_checked():
    search = searched("--search", "server-lr=0.1..1", "--search", "tau=1e-8,1e-3,1e-2")
    found = [dict(config.algorithm_settings) for config in search.configs()]
    assert {f["server-lr"] for f in found} == {0.1, 1.0}
    assert {f["tau"] for f in found} == {1e-8, 1e-3, 1e-2}


def test_algorithms_are_choices_with_their_settings():
    search = searched(
        "--search", "objective=sgd,fedprox", "--search", "client=fedbn,examples/fedper.py:FedPer"
    )
    assert {c.objective for c in search.configs()} == {"plain", "fedprox"}
    assert search.space[1].choices[1].startswith("/")  # a file is found from another folder, too


def test_the_validation_share_is_a_tenth_unless_given():
    assert searched("--search", "server-lr=0.1..1").configs()[0].val_fraction == 0.1
    assert "val-fraction: 0.1" in searched("--search", "server-lr=0.1..1").note
    given = searched("--search", "server-lr=0.1..1", "--val-fraction", "0.3")
    assert (given.configs()[0].val_fraction, given.note) == (0.3, "")


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ("--search server-lr", "search: 'server-lr' is not allowed; expected KEY=LOW..HIGH or KEY=A,B"),
        ("--search server-lr=", "search: 'server-lr=' is not allowed"),
        ("--search server-rl=1..2", "configuration: unknown name 'server-rl' .did you mean 'server-lr'"),
        ("--search mu=0.1..1", "mu: 0.1..1 is not used by strategy 'fedadam'"),
        ("--search rounds=1..9", "search: 'rounds' cannot be searched"),
        ("--search server-lr=1..1", "search: 'server-lr=1..1' is not allowed; expected 0 < LOW < HIGH"),
        ("--search server-lr=0..1", "search: 'server-lr=0..1' is not allowed; expected 0 < LOW < HIGH"),
        ("--search server-lr=1..inf", "search: 'server-lr=1..inf' is not allowed"),
        ("--search server-lr=a..b", "search: 'server-lr=a..b' is not allowed; expected LOW..HIGH, two "),
        ("--search batch-size=1.5..9", "search: 'batch-size=1.5..9' is not allowed; .*whole numbers"),
        ("--search beta-1=0.1..1", r"beta-1: 1.0 is not allowed; expected a number in \[0, 1\)"),
        ("--search client=fedbn", "search: 'client=fedbn' is not allowed; .*at least two values"),
        ("--search server-lr=1,1", "search: 'server-lr=1,1' is not allowed; .*each once"),
        ("--search tau=1..2 --tau 1", "tau: given twice, the second time in search"),
        ("--search tau=1..2 --search tau=1..3", "search: 'tau' is given twice"),
        ("--search tau=1..2 --trials 0", "trials: '0' is not allowed; expected a whole number >= 1"),
        ("--search tau=1..2 --trials 3 --trials 4", "--trials: given twice"),
        ("--search tau=1..2 --val-fraction 0", "val-fraction: '0' is not allowed; expected more than 0"),
        ("--search tau=1..2 --seed 0,1", "search: 'tau=1..2' needs a single run, .* a sweep of seed"),
        ("--trials 3", "trials: '3' is not used without search"),
        ("--resume runs/x --search tau=1..2", "search: 'tau=1..2' is not allowed; expected none with resume"),
    ],
)
def test_mistakes_are_reported(arguments, output):
    if "--seed" in arguments:
        pytest.importorskip("fedbn_flower.sweeps")
    with pytest.raises(UserError, match="^" + output):
        parse_command_line([*(() if "resume" in arguments else ADAM), *arguments.split()])


FILE = """
strategy = "fedadam"
val-fraction = 0.2

[search]
server-lr = "1e-3..1"
client = "fedbn,silobn"
trials = 7
"""


@pytest.fixture
def file(tmp_path):
    pytest.importorskip("fedbn_flower.sweeps")
    (tmp_path / "a.toml").write_text(FILE)
    return ["--experiment", str(tmp_path / "a.toml")]


def test_a_files_search_is_that_of_flags(file):
    flags = ["--search", "server-lr=1e-3..1", "--search", "client=fedbn,silobn", "--trials", "7"]
    assert search_of(file) == search_of(["--strategy", "fedadam", "--val-fraction", "0.2", *flags])


def test_flags_go_before_a_files_search(file):
    found = search_of([*file, "--search", "server-lr=2..3", "--client", "fedbn", "--trials", "4"])
    assert [(s.key, s.low, s.high) for s in found.space] == [("server-lr", 2.0, 3.0)]
    assert (found.trials, found.values["client"]) == (4, "fedbn")
    assert isinstance(parse_command_line([*file, "--client", "fedbn", "--server-lr", "0.1"]), Job)


@pytest.mark.parametrize(
    ("old", "new", "output"),
    [
        ("val-fraction = 0.2", "seed = [0, 1]", "search: 'server-lr=1e-3..1' needs a single run, but"),
        ('"1e-3..1"', "[1, 2]", r".*a.toml: server-lr: \[1, 2\] is not allowed; expected text, a number"),
        ("[search]", "[[search]]", r".*a.toml: search: .* is not allowed; expected a table: KEY = "),
        ('server-lr = "1e-3..1"\nclient = "fedbn,silobn"\n', "", ".*a.toml: search: .*expected a table: KEY"),
        ("trials = 7", "trials = 0", "trials: '0' is not allowed; expected a whole number >= 1"),
    ],
)
def test_mistakes_in_a_files_search_are_reported(file, old, new, output):
    path = file[1]
    with open(path, "w") as text:
        text.write(FILE.replace(old, new))
    with pytest.raises(UserError, match="^" + output):
        parse_command_line(file)
