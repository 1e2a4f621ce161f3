"""Exports of German and French spreadsheets: what has one reading only is read, and said."""

import numpy as np
import pandas as pd
import pytest

from fedbn_flower.core.errors import UserError

RNG = np.random.default_rng(0)
ROWS = 60
TABLE = pd.DataFrame(
    {
        "größe": RNG.normal(170, 8, ROWS).round(1),
        "crp": RNG.lognormal(0, 1, ROWS).round(3),
        "städtisch": np.array(["früh", "spät"])[RNG.integers(0, 2, ROWS)],
        "label": np.arange(ROWS) % 2,
    }
)
OF_COMMAS = "has decimal commas, as in "
BY_KEY = " (guessed; thousands decides)"
OF_LETTERS = "is no UTF-8; its letters are read as Windows-1252"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"encoding": "cp1252"}, [OF_LETTERS]),
        ({"sep": ";", "decimal": ","}, [f"{OF_COMMAS}'größe', 'crp'"]),
        ({"decimal": ","}, [f"{OF_COMMAS}'größe', 'crp'"]),
    ],
)
def test_values_are_those_of_the_plain_file(load, tmp_path, ending, written, said):
    """To the bit, by a parse of the same digits; the third column's words too."""
    TABLE.to_csv(tmp_path / "plain.csv", index=False)
    TABLE.to_csv(path := tmp_path / f"t.{ending}", index=False, **written)
    plain, found = load(tmp_path / "plain.csv"), load(path)
    assert found.digest == plain.digest
    assert found.kind.facts["columns"] == plain.kind.facts["columns"]
    here = [note.text for note in found.notes if note.text.startswith(f"'{path.name}'")]
    assert here == [f"'{path.name}' {line}" for line in said]


POINTS, COMMAS = "has points between thousands, as in ", "has commas between thousands, as in "


@pytest.mark.parametrize(
    ("columns", "sep", "values", "said"),
    [
        ({"a": ["1.234,50", "12,00", "0,5"]}, ";", [[1234.5, 12, 0.5]], [f"{OF_COMMAS}'a'", f"{POINTS}'a'"]),
        ({"a": ["1,234.50", "-12.00", "7"]}, ",", [[1234.5, -12, 7]], [f"{COMMAS}'a'"]),
        ({"a": ["1.234.567", "850", "NA"]}, ",", [[1234567, 850, np.nan]], [f"{POINTS}'a'"]),
        (
            {"a": ["1.234,50", "12,00", "2,5"], "b": ["1.234", "850", "2.000"], "c": ["2,500", "3", "1"]},
            ";",
            [[1234.5, 12, 2.5], [1234, 850, 2000], [2.5, 3, 1]],
            [f"{OF_COMMAS}'a', 'c'", f"{POINTS}'a', 'b'"],
        ),
        (
            {"a": ["1,234.50", "12", "5"], "b": ["1,234", "850", "2,000"], "c": ["1.5", "2.25", "3"]},
            ",",
            [[1234.5, 12, 5], [1234, 850, 2000], [1.5, 2.25, 3]],
            [f"{COMMAS}'a', 'b'"],
        ),
    ],
)  # fmt: skip
def test_thousands_are_read_and_said_where_nothing_else_fits(load, tmp_path, columns, sep, values, said):
    table = pd.DataFrame({name: cells * 6 for name, cells in columns.items()} | {"label": [0, 1] * 9})
    table.to_csv(tmp_path / "t.csv", index=False, sep=sep)
    found = load(tmp_path / "t.csv")
    x = np.concatenate([split.columns["x"] for split in found.splits])
    for column, expected in zip(x.T, values, strict=True):
        np.testing.assert_array_equal(np.sort(column), np.sort(np.float32(expected * 6)))
    lines = [note.line for note in found.notes if note.text.startswith("'t.csv'")]
    assert lines == [f"'t.csv' {line}{BY_KEY * ('thousands' in line)}" for line in said]


@pytest.mark.parametrize(
    ("columns", "wrong"),
    [
        ({"a": ["1,234", "2,345", "5,678"]}, "a"),  # may be thousands
        ({"a": ["1,5", "2.5", "3"]}, "a"),
        ({"a": ["1,5", "1.234,5", "3"], "b": ["1.5", "2.25", "3"]}, "a"),
        ({"a": ["1,5", "2,25", "3"], "b": ["1.5", "2.25", "3"]}, "a"),
        ({"a": ["1,234", "850", "2,000"], "b": ["1.5", "2.25", "3"]}, "a"),
        ({"a": ["1,234", "0.5", "2,000"]}, "a"),
        ({"a": ["1.234", "850", "2.000"], "b": ["12,00", "0,5", "2"]}, "b"),
        ({"a": ["1.234,50", "2", "1,234.50"]}, "a"),
        ({"a": ["1.234,50", "2", "3"], "b": ["0.125", "2", "3"]}, "a"),
        ({"a": ["1.234,50", "2", "3"], "b": ["1,234.50", "2", "3"]}, "a"),
    ],
)
def test_what_has_another_reading_or_contradicts_is_never_guessed(load, tmp_path, columns, wrong):
    table = pd.DataFrame({name: cells * 6 for name, cells in columns.items()} | {"label": [0, 1] * 9})
    table.to_csv(tmp_path / "t.csv", index=False, sep=";")
    with pytest.raises(UserError, match=f"'{wrong}' holds numbers as text"):
        load(tmp_path / "t.csv")


@pytest.mark.parametrize("encoding", ["cp850", "cp1251", "iso8859-2"])
def test_letters_of_another_encoding_are_refused(load, tmp_path, encoding):
    word = {"cp1251": "Иванов", "iso8859-2": "łódź"}.get(encoding, "männlich")
    TABLE.assign(städtisch=word).rename(columns={"größe": "a", "städtisch": "b"}).to_csv(
        tmp_path / "t.csv", index=False, encoding=encoding
    )
    with pytest.raises(UserError, match=r"is not a text in UTF-8 \(byte 0x"):
        load(tmp_path / "t.csv")


DAYS = pd.Timestamp("2021-01-05") + pd.to_timedelta(RNG.permutation(300)[:ROWS], "D")
COSTS = RNG.integers(1000, 2_000_000, ROWS) / 4
PLAIN = TABLE.assign(cost=COSTS, admitted=(DAYS - pd.Timestamp("1970-01-01")).days)
TITLES = "Auszug vom 1.9.2021\n\n"
GERMAN = {"encoding": "cp850", "decimal": ",", "thousands": ".", "header_row": 3, "date_format": "%d.%m.%Y"}


def german(number, digits):
    return f"{number:,.{digits}f}".translate(str.maketrans(",.", ".,"))


def exported():
    """The table as a German spreadsheet shows it."""
    cells = {"größe": [german(n, 1) for n in TABLE.größe], "crp": [german(n, 3) for n in TABLE.crp]}
    dates = [f"{day.day}.{day.month}.{day.year}" for day in DAYS]
    return TABLE.assign(**cells, cost=[german(n, 2) for n in COSTS], admitted=dates)


def german_csv(path):
    path.write_bytes((TITLES + exported().to_csv(index=False, sep=";")).encode("cp850"))


def german_excel(path):
    exported().to_excel(path, index=False, startrow=2)


MESSY = TABLE.assign(admitted=[f"{day.day:02}.{day.month:02}.{day.year}" for day in DAYS])
OF_BOTH = {"dates are days since 1970-01-01: 'admitted'", "2 lines above the header of '{}'"}
GUESSED = OF_BOTH | {"'admitted' of '{}' has dates, read as %d.%m.%Y"}
OF_TEXT = GUESSED | {f"'{{}}' {OF_LETTERS}", f"'{{}}' {OF_COMMAS}'größe', 'crp'"}


def messy_csv(path):
    text = MESSY.to_csv(index=False, sep=";", decimal=",")
    path.write_bytes(("Auszug für die Größe\n\n" + text).encode("latin-1"))


def messy_excel(path):
    with pd.ExcelWriter(path) as book:
        MESSY.to_excel(book, index=False, startrow=2)
        book.sheets["Sheet1"]["A1"] = "Auszug für die Größe"


@pytest.mark.parametrize(
    ("name", "write", "keys", "said"),
    [
        ("t.csv", german_csv, GERMAN, OF_BOTH),
        ("t.xlsx", german_excel, GERMAN | {"encoding": "auto"}, OF_BOTH),
        ("t.csv", messy_csv, {}, OF_TEXT),
        ("t.xlsx", messy_excel, {}, GUESSED),
    ],
)
def test_a_messy_export_has_the_values_of_the_plain_file(load, tmp_path, name, write, keys, said):
    """With each key, or where there is one reading, in one go."""
    (PLAIN if keys else PLAIN[[*MESSY]]).to_csv(tmp_path / "plain.csv", index=False)
    write(tmp_path / name)
    plain, found = load(tmp_path / "plain.csv"), load(tmp_path / name, **keys)
    assert found.digest == plain.digest
    rows = sorted(int(one.rpartition(b":")[2]) for one in [*found.train.origins, *found.test.origins])
    assert rows == list(range(4, 4 + ROWS))  # as the spreadsheet shows them
    assert {line.format(name) for line in said} <= {note.text for note in found.notes}


def test_a_date_is_as_many_days_since_1970_in_a_text_a_sheet_and_parquet(load, tmp_path, monkeypatch):
    """Also in a file whose relative name pyarrow would take for a URI."""
    monkeypatch.chdir(tmp_path)
    days = pd.Series(
        pd.to_datetime(["1970-01-02", "2000-03-01", None, "1969-12-31T12:00"] * 5, format="ISO8601")
    )
    table = pd.DataFrame({"day": days, "label": [0, 1] * 10})
    table.to_parquet(tmp_path / "day:1.parquet")
    table.to_excel(tmp_path / "t.xlsx", index=False)
    table.assign(day=days.dt.strftime("%H:%M %m/%d/%y")).to_csv(tmp_path / "t.csv", index=False)
    for name, keys in {"day:1.parquet": {}, "t.xlsx": {}, "t.csv": {"date_format": "%H:%M %m/%d/%y"}}.items():
        found = load(name, **keys)
        x = np.concatenate([split.columns["x"][:, 0] for split in found.splits])
        assert sorted(x[~np.isnan(x)]) == [-0.5] * 5 + [1.0] * 5 + [11017.0] * 5
        assert np.isnan(x).sum() == 5


@pytest.mark.parametrize(
    ("cells", "keys", "values"),
    [
        (["1.234", "850", "2.000"], {"thousands": "."}, [1234, 850, 2000]),
        (["1.234", "850.5", "2"], {"decimal": "."}, [1.234, 850.5, 2]),
        (["1.234", "850", "2.000"], {"decimal": "."}, [1.234, 850, 2]),
        (["1'234,5", "1\u2019000", "-2"], {"thousands": "'", "decimal": ","}, [1234.5, 1000, -2]),
        (["1 234.5", "1\u202f000", "+2\u00a0000"], {"thousands": "space"}, [1234.5, 1000, 2000]),
        (["1,500", "2", ""], {"decimal": ","}, [1.5, 2, np.nan]),
        (["1,500", "2", "NA"], {"thousands": ","}, [1500, 2, np.nan]),
    ],
)
def test_numbers_are_as_the_keys_say(load, tmp_path, cells, keys, values):
    pd.DataFrame({"a": cells * 6, "label": [0, 1] * 9}).to_csv(tmp_path / "t.csv", index=False)
    found = load(tmp_path / "t.csv", **keys)
    x = np.concatenate([split.columns["x"][:, 0] for split in found.splits])
    np.testing.assert_array_equal(np.sort(x), np.sort(np.float32(values * 6)))


@pytest.mark.parametrize("cell", ["12.34", "1.2345", "07.08.2021"])
def test_points_that_make_no_groups_of_three_are_no_thousands(load, tmp_path, cell):
    pd.DataFrame({"a": ["1.234", cell] * 9, "label": [0, 1] * 9}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(UserError, match="columns: 'a' holds "):
        load(tmp_path / "t.csv", thousands=".")


def test_named_values_and_ids_stay_words(load, tmp_path):
    table = pd.DataFrame(
        {"code": ["1,5", "2,5"] * 9, "id": [f"{n},0" for n in range(18)], "label": [0, 1] * 9}
    )
    table.to_csv(tmp_path / "t.csv", index=False)
    asked = {"thousands": "'", "columns": '"code=1,5|2,5"', "unit_column": "id", "unit_key": "group-column"}
    found = load(tmp_path / "t.csv", **asked)
    assert found.kind.facts["columns"] == [{"name": "code", "values": ["1,5", "2,5"]}]
    assert sorted(found.train.unit_names) == sorted(table.id)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"encoding": "latin-99"}, "^encoding: 'latin-99' is not allowed; expected auto, or an encoding"),
        ({"encoding": "hex"}, "^encoding: 'hex' is not allowed; expected auto, or an encoding of text"),
        (
            {"encoding": "ascii"},
            r"is not a text in ascii \(byte 0xc3\); save it as UTF-8, or name its encoding",
        ),
        ({"decimal": ",", "thousands": ","}, "^thousands: ',' is not allowed; expected a sign other than"),
        ({"date_format": "%d.%m."}, "^date-format: '%d.%m.' is not allowed; expected auto, or a format with"),
        ({"date_format": "%Q"}, "^date-format: '%Q' is not allowed"),
        (
            {"header_row": 99},
            "^header-row: 99 is not allowed; expected a row of '.*t.csv', which has no such",
        ),
    ],
)
def test_a_key_that_no_file_fits_is_one_line(load, tmp_path, keys, message):
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(UserError, match=message):
        load(tmp_path / "t.csv", **keys)


@pytest.mark.parametrize(
    ("ending", "keys"),
    [("parquet", {"encoding": "cp1252"}), ("parquet", {"header_row": 2}), ("xlsx", {"encoding": "cp1252"})],
)
def test_a_key_of_texts_is_refused_of_a_file_that_says_it_itself_but_at_a_site(load, tmp_path, ending, keys):
    path = tmp_path / f"t.{ending}"
    TABLE.to_parquet(path) if ending == "parquet" else TABLE.to_excel(path, index=False)
    (key,) = keys
    with pytest.raises(
        UserError, match=f"^{key.replace('_', '-')}: .* expected .*: 't.{ending}' says it itself"
    ):
        load(path, **keys)
    columns = '"größe",crp,städtisch=früh|spät'
    if "header_row" not in keys:
        assert len(load(path, **keys, of_site=True, columns=columns).train) == 48


@pytest.mark.parametrize(
    ("dates", "days"),
    [
        (["07.08.2021", "13.08.2021"], [18846, 18852]),
        (["08/07/2021", "08/13/2021"], [18846, 18852]),
        (["2021-08-07", "2021-08-13T12:00"], [18846, 18852.5]),
        (["7-8-2021 06:00", "13-8-2021 18:00"], [18846.25, 18852.75]),
        (["2021/8/7", "2021/8/1"], [18846, 18840]),
    ],
)
def test_dates_of_one_format_are_days(load, tmp_path, dates, days):
    """In each of several columns, as of admission and discharge."""
    table = pd.DataFrame({"d": dates * 9, "e": dates * 9, "label": [0, 0, 1] * 6})
    table.to_csv(tmp_path / "t.csv", index=False)
    found = load(tmp_path / "t.csv")
    x = np.concatenate([split.columns["x"] for split in found.splits])
    assert [sorted(set(column.tolist())) for column in x.T] == [sorted(days)] * 2


def test_a_text_of_dates_has_truth_values_beside_it_in_parquet(load, tmp_path):
    ill = pd.array([True, None, False] * 6, "boolean")
    pd.DataFrame({"d": ["7.8.2021"] * 18, "ill": ill, "label": [0, 1] * 9}).to_parquet(tmp_path / "t.parquet")
    found = load(tmp_path / "t.parquet", date_format="%d.%m.%Y")
    assert found.train.columns["x"][0].tolist() in ([18846, 0, 1], [18846, 1, 0], [18846, 0, 0])


@pytest.mark.parametrize(
    "dates", [["07.08.2021", "12.11.2021"], ["1/2/21", "13/2/21"], ["13.01.2021", "01.13.2021"]]
)
def test_dates_with_another_reading_or_none_are_refused(load, tmp_path, dates):
    pd.DataFrame({"d": dates * 9, "label": [0, 1] * 9}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(UserError, match="columns: 'd' holds dates as text"):
        load(tmp_path / "t.csv")


def test_rows_that_a_spreadsheet_hides_are_read_and_said(load, tmp_path, monkeypatch):
    """As a filter does, whose user sees fewer rows than are trained on."""
    monkeypatch.setattr("fedbn_flower.files.tables.large.CHUNK", 97)
    frame = pd.DataFrame({"age": range(40), "label": [0, 1] * 20})
    with pd.ExcelWriter(tmp_path / "t.xlsx", engine="openpyxl") as book:
        frame.to_excel(book, index=False)
        for row in (3, 4, 20, *range(70, 90)):  # the last are empty
            book.sheets["Sheet1"].row_dimensions[row].hidden = True
    found = load(tmp_path / "t.xlsx")
    assert sum(map(len, found.splits)) == 40
    assert "3 hidden rows of 't.xlsx' are read, too" in [note.text for note in found.notes]


def test_a_title_above_words_alone_is_refused_with_the_key(load, tmp_path):
    (tmp_path / "t.csv").write_text("My words\n\na,label\n" + "x,y\nz,w\n" * 9)
    with pytest.raises(UserError, match=r"if the header is 'a,label', name its row: header-row=3"):
        load(tmp_path / "t.csv")
    assert len(load(tmp_path / "t.csv", header_row=3).train) == 15


def test_all_that_is_wrong_is_said_at_once_each_with_its_key(load, tmp_path):
    """And the keys that are named read it."""
    rows = "".join(f"{n % 2};m\u00e4nnlich;07.08.2021;1,{500 + n}\n" for n in range(20))
    path = tmp_path / "t.csv"
    path.write_bytes(("label;sex;day;crp\n" + rows).encode("cp850"))
    with pytest.raises(UserError) as error:
        load(path)
    first, *others = str(error.value).split("; ")
    assert first == f"dataset: {str(path)!r} is not a text in UTF-8 (byte 0x84)"
    assert others == [
        "save it as UTF-8, or name its encoding, as in encoding=cp850",
        "'day' holds dates as text, such as '07.08.2021': name their form, as in date-format=%d.%m.%Y",
        "'crp' holds numbers as text, such as '1,500': name its signs, as in decimal=, or thousands=.",
    ]
    found = load(path, encoding="cp850", date_format="%d.%m.%Y", decimal=",")
    x = np.concatenate([split.columns["x"] for split in found.splits])
    assert sorted(x[:, -1].tolist()) == [np.float32(1.5 + n / 1000) for n in range(20)]
    with pytest.raises(UserError) as error:
        load(path, encoding="cp850")
    assert str(error.value).startswith(f"dataset: {str(path)!r}: 'day' holds dates as text")


def test_what_is_wrong_with_several_sites_files_is_one_line(load, tmp_path):
    """Of five files; of the others it says how many they are."""
    for site in range(8):
        rows = b"m\x84nnlich,1\n" if site else b"1,2\n"
        (tmp_path / f"site-{site}.csv").write_bytes(b"a,label\n" + rows * 9)
    with pytest.raises(UserError) as error:
        load(tmp_path)
    line = str(error.value)
    named = [f"site-{site}.csv" in line for site in range(8)]
    assert named == [False] + [True] * 5 + [False] * 2
    assert line.count("encoding=cp850") == 5
    assert line.startswith("dataset: ")
    assert line.count("dataset: ") == 1
    assert line.endswith("; and 2 more files")


def test_a_mark_that_lies_is_one_line(load, tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfa,label\n\x81,1\n" + b"2,0\n" * 9)
    with pytest.raises(UserError, match=r"is not a text in UTF-8-SIG \(byte 0x81\)"):
        load(tmp_path / "t.csv")


def test_a_byte_far_below_the_header_is_said_with_the_rest(load, tmp_path):
    rows = b"1,2,07.08.2021\n" * 9000 + b"\x81,2,07.08.2021\n"
    (tmp_path / "t.csv").write_bytes(b"a,label,day\n" + rows)
    with pytest.raises(UserError, match=r"\(byte 0x81\); .*; 'day' holds dates as text"):
        load(tmp_path / "t.csv")
