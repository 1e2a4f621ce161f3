"""How many cases each site has by class: counted by hand, in every table that has metrics by site."""

import numpy as np
import pytest

from fedbn_flower.cli import main
from fedbn_flower.records.summary import Summary
from fedbn_flower.results.held_out import divided_otherwise, have_same_cases, held_out_by_site, held_out_table
from fedbn_flower.results.run_reader import Run

from .html_page import page
from .written import change_run, summary_of, write_run
from .written_cases import drawn, summary_of_cases, write_cases, write_sweep_of_cases

METHODS = drawn({"fedavg": 2.0, "fedyogi": 0.0}, cases=151)
EVENTS = {site: int(cases["targets"].sum()) for site, cases in METHODS["fedavg"].items()}
ROWS = [
    ["lyon", "76", str(76 - EVENTS["lyon"]), str(EVENTS["lyon"])],
    ["turin", "75", str(75 - EVENTS["turin"]), str(EVENTS["turin"])],
    ["all sites", "151", str(151 - sum(EVENTS.values())), str(sum(EVENTS.values()))],
]
HEADER = ["site", "held-out cases", "well", "ill (events)"]


def test_a_run_its_latex_and_its_card_have_them(tmp_path):
    model_card = pytest.importorskip("fedbn_flower.study.methods").model_card
    folder = write_cases(tmp_path / "run", METHODS["fedavg"])
    assert held_out_table([Run.read(folder)]).rows == ROWS
    shown = page(folder)
    assert all(row in shown.rows for row in [HEADER, *ROWS])
    assert " & ".join(ROWS[0]) in "".join(shown.text["pre"])
    card = model_card(Run.read(folder))
    assert "| site | accuracy | 95 % interval | held-out cases | well | ill (events) |" in card
    (line,) = [line for line in card.splitlines() if line.startswith("| lyon |")]
    assert line.endswith(f"| {' | '.join(ROWS[0][1:])} |")


IID, SILOS = {"partition": "iid"}, {"partition": "silos:0-4,5-9"}


@pytest.mark.parametrize(
    ("keys", "eval_data", "told"),
    [
        ([IID, IID], "local", False),
        ([IID, {**IID, "seed": 1}], "local", True),
        ([IID, {**IID, "seed": 1}], "global", False),  # all clients have the same cases
        ([{"partition": "dirichlet:0.1"}, {"partition": "dirichlet:1"}], "local", True),
        ([IID, {**IID, "num_clients": 3}], "local", True),
        ([SILOS, {**SILOS, "seed": 1}], "local", False),  # the same classes
        ([{"partition": "natural:site"}, {"partition": "natural:site", "seed": 1}], "local", False),
    ],
)
def test_that_a_clients_number_is_another_clients_in_other_runs_is_said(tmp_path, keys, eval_data, told):
    """A mean over seeds by client is otherwise taken for that of a client."""
    pytest.importorskip("fedbn_flower.study")
    summary = summary_of([0.5, 0.7], **{"eval-data": eval_data})
    folders = [write_run(tmp_path / str(i), summary, **of_run) for i, of_run in enumerate(keys)]
    assert bool(divided_otherwise(map(Run.read, folders))) == told
    if told:
        assert main(["compare", *map(str, folders), "--to", str(tmp_path / "to")]) == 0
        page_text = (tmp_path / "to" / "compare.html").read_text()
        assert "Runs divide the data into other clients, so client 0 of one is not client 0 of" in page_text


@pytest.mark.slow
def test_sweeps_and_compare_have_them(configured, tmp_path, capsys, sweeps_table):
    pytest.importorskip("fedbn_flower.study")
    grid = sweeps_table(tmp_path / "grid")
    for strategy, cases in METHODS.items():
        write_cases(tmp_path / "grid" / strategy, cases, strategy=strategy)
        found = Summary.model_validate(summary_of_cases(cases))
        grid.add(configured(strategy=strategy, eval_data="local"), found, name=strategy)
    grid.plot()
    lines = "\n".join(f"| {' | '.join(row)} |" for row in ROWS)
    text = (tmp_path / "grid" / "grid.md").read_text()
    assert f"Held-out cases by site:\n\n| {' | '.join(HEADER)} |\n" in text
    assert lines in text
    folder = write_sweep_of_cases(tmp_path / "sweep", METHODS)
    shown = page(folder)
    assert all(row in shown.rows for row in [HEADER, *ROWS])
    assert " & ".join(ROWS[1]) in "".join(shown.text["pre"])
    to = tmp_path / "to"
    assert main(["compare", str(folder), "--to", str(to)]) == 0
    assert lines in (to / "compare.md").read_text()
    assert "held-out cases by site" in capsys.readouterr().out
    assert "Held-out cases by site" in (to / "compare.html").read_text()


def test_a_sweep_knows_an_event_that_is_the_first_class(configured, tmp_path, sweeps_table):
    grid = sweeps_table(tmp_path)
    write_cases(tmp_path / "run", METHODS["fedavg"], class_names=["died", "lived"], events=["died"])
    grid.add(configured(), Summary.model_validate(summary_of_cases(METHODS["fedavg"])), name="run")
    grid.plot()
    rows = [["site", "held-out cases", "lived", "died (events)"], ["---", "---:", "---:", "---:"], *ROWS]
    assert "".join(f"| {' | '.join(row)} |\n" for row in rows) in (tmp_path / "grid.md").read_text()


def test_without_predictions_they_are_those_of_classes(tmp_path):
    folder = write_run(tmp_path / "run", client_names=["lyon", "turin"])
    (folder / "classes.csv").write_text(
        "round,partition,class,examples,accuracy\n3,0,a,5,1\n3,0,b,2,1\n3,0,c,0,\n3,1,a,1,1\n3,1,b,0,\n3,1,c,4,1\n"
    )
    table = held_out_table([Run.read(folder)])
    assert table.header == ["site", "held-out cases", "a", "b", "c"]
    assert table.rows == [
        ["lyon", "7", "5", "2", "0"],
        ["turin", "5", "1", "0", "4"],
        ["all sites", "12", "6", "2", "4"],
    ]
    assert held_out_table([Run.read(write_run(tmp_path / "other"))]) is None


def test_runs_that_differ_have_a_range_and_shared_cases_no_sum(tmp_path):
    """If in each run one of two sites is left out, its cases are those of the other, and there is no sum."""
    of_sites = METHODS["fedavg"].items()
    runs = [Run.read(write_cases(tmp_path / site, {site: cases})) for site, cases in of_sites]
    assert held_out_table(runs).rows == ROWS[:2]
    first = write_cases(tmp_path / "a", METHODS["fedavg"])
    fewer = {site: {k: v[:50] for k, v in cases.items()} for site, cases in METHODS["fedavg"].items()}
    second = write_cases(tmp_path / "b", fewer)
    rows = held_out_table([Run.read(first), Run.read(second)]).rows
    assert [row[:2] for row in rows] == [
        ["lyon", "50 to 76"],
        ["turin", "50 to 75"],
        ["all sites", "100 to 151"],
    ]
    shared = write_cases(tmp_path / "c", METHODS["fedavg"], eval_data="global")
    assert [row[0] for row in held_out_table([Run.read(shared)]).rows] == ["lyon", "turin"]
    change_run(shared, {"class-names": ["0", "1"]})
    assert held_out_table([Run.read(shared)]).header[2:] == ["class 0", "class 1 (events)"]


def test_whether_sites_have_the_same_cases_is_read_from_the_folder(tmp_path):
    for name, examples in (("shared", [5, 2]), ("own", [10, 4])):
        per_class = {"names": ["a", "b"], "examples": examples, "accuracy": [1, 1]}
        folder = write_run(
            tmp_path / name, summary_of([0.5, 0.5], **{"per-class": per_class}), eval_data="auto"
        )
        lines = "".join(f"3,{site},a,5,1\n3,{site},b,2,1\n" for site in (0, 1))
        (folder / "classes.csv").write_text(f"round,partition,class,examples,accuracy\n{lines}")
        assert have_same_cases(Run.read(folder)) == (name == "shared")
    one = METHODS["fedavg"]["lyon"]
    assert have_same_cases(Run.read(write_cases(tmp_path / "a", {"lyon": one, "turin": one})))
    assert not have_same_cases(Run.read(write_cases(tmp_path / "b", METHODS["fedavg"])))


def test_of_numbers_and_of_many_sites_and_classes(tmp_path):
    many = drawn({"a": 1.0}, cases=100, sites=tuple(map(str, range(41))))["a"]
    table = held_out_table([Run.read(write_cases(tmp_path / "a", many))])
    assert [row[:2] for row in table.rows] == [["all sites", "100"]]
    folder = write_run(tmp_path / "b")
    lines = "".join(f"3,0,{i},1,1\n" for i in range(13))
    (folder / "classes.csv").write_text(f"round,partition,class,examples,accuracy\n{lines}")
    assert held_out_table([Run.read(folder)]).rows == [["0", "13"], ["all sites", "13"]]


def test_numbers_have_no_classes(run):
    x = np.random.default_rng(0).normal(size=(120, 3)).astype(np.float32)
    keys = {"num_clients": 2, "partition": "iid", "client": "shared", "eval_data": "local", "rounds": 1}
    result = run(data=(x[:80], x[:80, :1], x[80:], x[80:, :1]), **keys)
    found = held_out_by_site(Run.read(result.folder))
    assert found == {"0": {"": 20}, "1": {"": 20}}
    assert held_out_table([Run.read(result.folder)]).rows[-1] == ["all sites", "40"]
