"""Tables in a narrow terminal."""

import io

from rich.console import Console
from rich.table import Table

from fedbn_flower.core.notes import Note
from fedbn_flower.results.report.tables import Table as Report
from fedbn_flower.results.summary import seeds_text
from fedbn_flower.results.terminal import MIN_WIDTH, fit_to_width, shorten_middle


def shown(table, width):
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(fit_to_width(table, width))
    return console.export_text()


def test_a_name_loses_its_middle():
    assert shorten_middle(["abcdefghij", "short"], 7) == ["abc…hij", "short"]


def test_what_distinguishes_two_names_stays():
    names = [f"experiment-{where}-lr-of-the-server" for where in ("aa", "ab")]
    assert shorten_middle(names, 14) == ["exper…aa…erver", "exper…ab…erver"]
    assert shorten_middle([*names, "plain", "experiment-a-lr-of-the-server"], 14)[2] == "plain"


def test_names_that_every_cut_makes_alike_stay_longer():
    """They differ at both ends of a stretch that is longer than what may be kept."""
    same = "x" * 20
    names = [f"a{same}b", f"c{same}b", f"a{same}d", f"a{'x' * 10 + 'y' * 10}b"]
    assert len(set(shorten_middle(names, 6))) == 4


def test_nothing_of_what_is_learnt_is_left_out():
    """A list of categories has no blanks, and is wrapped at its bars; a word may be longer than a line."""
    values = "|".join(f"P{i:03}" for i in range(40))
    notes = [
        Note(
            "target", "column 'outcome' (guessed; label-column decides), of which each word fits into a line"
        ),
        Note("inputs", f"categories are one-hot encoded in the order of 'patient={values},age'"),
        Note("left out", "x" * 200),
    ]
    lines = shown(Report.of_learnt(notes).terminal(), 80).splitlines()
    assert max(map(len, lines)) <= 80
    cells = [line[12:].strip() for line in lines[3:]]
    assert "".join(cells).replace(" ", "") == "".join(note.line for note in notes).replace(" ", "")
    assert sum(cell.endswith("|") for cell in cells) == 3
    assert all(f"P{i:03}" in "\n".join(cells) for i in range(40))


def test_numbers_are_whole_and_rows_are_distinguished_in_80_columns():
    table = Table(title="of all")
    table.add_column("run")
    for name in ("mean over examples", "mean over clients", "client 0", "client 1", "seconds"):
        table.add_column(name, justify="right")
    names = [f"fedyogi-fedbn-plain-server-lr={rate}-dirichlet~0.5-hospitals-seed0" for rate in (0.01, 0.02)]
    for name in names:
        table.add_row(name, "55.13 ± 1.25 *", "54.18 ± 1.31", "50.01", "60.02", "1234.5")
    lines = shown(table, 80).splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line for line in lines if "…" in line]
    assert len(rows) == 2
    assert ["0.01" in rows[0], "0.02" in rows[1]] == [True, True]
    for number in ("55.13 ± 1.25 *", "50.01", "60.02", "1234.5"):
        assert [number in row for row in rows] == [True, True]
    wide = shown(table, 200)
    assert all(name in wide for name in names)


def test_a_number_with_a_mark_is_one():
    """It stays on one line where names are shortened."""
    table = Table()
    for name in ("run", "x"):
        table.add_column(name)
    table.add_row("a-name-that-is-longer-than-the-number", "55.13 +- 1.25 (3 of 4) *")
    assert "55.13 +- 1.25 (3 of 4) *" in shown(table, 41)


def test_a_table_that_is_too_wide_at_its_narrowest_loses_nothing():
    table = Table()
    for number in range(12):
        table.add_column(f"c{number}")
    table.add_row(*(f"{number:02}-{'x' * MIN_WIDTH}" for number in range(12)))
    text = shown(table, 60)
    assert max(map(len, text.splitlines())) <= 60


def test_what_looks_like_markup_or_a_picture_is_shown_as_it_is():
    marked = Table()
    marked.add_column("who")
    marked.add_row(r"\[red]Lyon")
    assert "[red]Lyon" in shown(marked, 80)
    table = Report(["run", "value"], [["clinic:a:1", "1"]], note="expected polynomial:A or hinge:A:B")
    for terminal in (True, False):
        file = io.StringIO()
        table.show(Console(file=file, width=80, force_terminal=terminal, emoji=False), "of :a:")
        assert all(text in file.getvalue() for text in ("clinic:a:1", "hinge:A:B", "of :a:"))


def test_over_how_many_seeds():
    given = ([], [1, 1], [2, 2], [1, 3, 2], [0, 2], [2, 1, 0])
    assert [*map(seeds_text, given)] == ["", "", "2", "1 to 3", "2", "1 to 2"]


def test_names_of_several_words_and_headers_with_hyphens_are_wrapped():
    """As of a run with three further metrics: who is meant can be read."""
    table = Table(title="a run")
    table.add_column("model")
    for name in ("training examples", "loss", "accuracy", "sensitivity-at:0.9", "auroc", "ece"):
        table.add_column(name, justify="right")
    for name in ("mean over examples", "worst client", "client north", "client south"):
        table.add_row(name, "1200", "0.1331", "96.2 %", "0.4118", "0.8332", "0.009002")
    text = shown(table, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert [word in text for word in ("mean over", "examples", "north", "south", "sensitivity-")] == [
        True
    ] * 5
    assert "client north" in shown(table, 120)
