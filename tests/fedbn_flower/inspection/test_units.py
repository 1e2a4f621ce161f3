"""Numbers that are not what they are taken for: other units, levels of pictures, nearly whole numbers."""

import numpy as np
import pytest

from fedbn_flower.cli import main
from fedbn_flower.core.errors import UserError
from fedbn_flower.data import Request, load_dataset
from fedbn_flower.data.masks import as_masks
from fedbn_flower.data.partition.shares import Shares
from fedbn_flower.data.readers.arrays import PARTS, keep_arrays
from fedbn_flower.inspection.parts import (
    Parts,
    other_words,
    single_numbers,
    warn_about_pairs,
    warn_about_parts,
    warn_about_scales,
    without_values,
)
from fedbn_flower.job.checks.notices import warnings_of_data
from fedbn_flower.job.inputs import inputs_of

from .frames import dataset_of

RNG = np.random.default_rng(0)
FILLED = "where it is filled with one value; name the columns to use without it, or find out why"
DRAWN = {
    "creatinine in mg/dl and µmol/l": (RNG.lognormal(0, 0.35, 60), 88.4, True),
    "temperature in °C and °F": (RNG.normal(37, 0.4, 60), 2.66, True),
    "grams and kilograms, two sites": (RNG.normal(70, 12, 60), 1000, True),
    "ages of children and of their parents' parents": (np.maximum(RNG.normal(9, 5, 60), 0.5), 8, False),
    "counts that spread": (RNG.lognormal(2, 1.5, 60), 10, False),
    "a site with nearly twice as much": (RNG.normal(10, 0.5, 60), 1.9, False),
    "numbers about zero": (RNG.normal(0, 1, 60), 100, False),
    "one value at a site": (np.ones(60), 1.5, False),
}


SITES = ("graz", "lyon", "turin")
BY_SITE = Parts.of_clients(Shares.of(np.split(np.arange(180), 3)), SITES)


@pytest.mark.parametrize("label", ["y", "lab"])
@pytest.mark.parametrize("name", DRAWN)
def test_units_that_differ_between_sites_are_a_doubt(name, label):
    values, factor, doubted = DRAWN[name]
    lab = np.concatenate([RNG.permutation(values) * (factor if site == "lyon" else 1) for site in SITES])
    data = dataset_of(
        {"lab": lab, "b": np.resize([0.0, 1, 2, np.nan], 180), "y": np.resize([0, 1], 180)}, label
    )
    lines = [line for line in warn_about_parts(data, BY_SITE) if "units?" in line]
    assert len(lines) == doubted
    if doubted:
        assert lines[0].startswith("columns: units? 'lab' has a median of ")
        assert " at lyon, far more than the numbers of each site spread" in lines[0]


@pytest.mark.parametrize(
    ("site", "test", "said"),
    [
        (1, 1, None),
        (1, 255, "0.51 at client 0 and 130 in the test set"),
        (255, 1, "0.51 at client 0 and 130 at client 1"),
        (1, 1 / 255, "0.002 in the test set and 0.51 at client 1"),
        (1, 40, None),  # another population
    ],
)
def test_arrays_of_which_only_some_are_scaled_are_a_doubt(cache_dir, site, test, said):
    """As where the training set alone was divided by 255; zeros do not count."""
    x = np.tile(np.r_[np.zeros(300), np.linspace(-1, 1, 101)], (80, 1))
    of_site = np.where(np.arange(40) < 20, 1, site)[:, None]
    arrays = x[:40] * of_site, np.arange(40) % 2, x[:40] * test, np.arange(40) % 2
    name = keep_arrays(cache_dir, dict(zip(PARTS, arrays, strict=True)))
    halves = Parts.of_clients(Shares.of(np.split(np.arange(40), 2)), [])
    lines = list(warn_about_scales(load_dataset(Request(name), cache_dir), halves))
    assert lines == [
        f"data: scale? the median magnitude of the inputs is {said}; if only one of them was scaled, scale "
        "both alike"
    ] * (said is not None)


def test_noise_beside_a_signal_and_an_outlier_are_no_scale(cache_dir):
    """One site pads with zeros, one with noise of 1e-3; and one number is a million."""
    x = np.tile(np.r_[np.zeros(600), np.linspace(-1, 1, 101)], (80, 1))
    x[20:40, :600] = 1e-3
    x[60, 0] = 1e6
    y = np.arange(40) % 2
    name = keep_arrays(cache_dir, dict(zip(PARTS, (x[:40], y, x[40:], y), strict=True)))
    halves = Parts.of_clients(Shares.of(np.split(np.arange(40), 2)), [])
    assert not list(warn_about_scales(load_dataset(Request(name), cache_dir), halves))


@pytest.mark.parametrize(
    ("kept", "doubted"),
    [
        (60, True),  # all others have a value in each row
        (12, True),  # 0.8 ** 60, for the rows of a site, is below 0.001 / 6, for the columns and sites
        (6, False),  # 0.9 ** 60 is 0.002
    ],
)
def test_a_site_without_any_value_of_a_column_is_a_doubt(kept, doubted):
    there = (np.arange(180) % 60 < kept) & (np.arange(180) // 60 != SITES.index("lyon"))
    lab = np.where(there, np.arange(180.0), np.nan)
    word = np.where(there, np.resize(np.array(["x", "y"], object), 180), None)
    data = dataset_of({"lab": lab, "word": word, "label": np.resize([0, 1], 180)}, "label")
    lines = list(without_values(data.kind, BY_SITE))
    assert (
        lines == [f"columns: lacking? no training row has 'lab' at lyon, 'word' at lyon, {FILLED}"] * doubted
    )


CONSTANT = {
    "zeros where nobody asked": (RNG.integers(0, 40, 60), 0, True),
    "ten values, a fifth of them 0": (np.resize([0, 0, *range(1, 10)], 60), 0, True),
    "a flag that is off": (np.resize([0, 1], 60), 0, False),
    "what is mostly 0": (np.append(np.zeros(50), np.arange(10)), 0, False),
    "no value": (RNG.integers(0, 40, 60), np.nan, False),
}


@pytest.mark.parametrize("name", CONSTANT)
def test_a_site_with_one_of_many_values_is_a_doubt(name):
    values, own, doubted = CONSTANT[name]
    lab = np.concatenate([np.full(60, own) if site == "lyon" else values for site in SITES]).astype(float)
    beds = np.repeat([100.0, 250, 80], 60)
    data = dataset_of({"lab": lab, "beds": beds, "label": np.resize([0, 1], 180)}, "label")
    said = (
        "columns: lacking? 'lab' is 0 at lyon, in each training row, and has many values elsewhere; if it "
        "stands for a missing value, leave it empty"
    )
    assert list(single_numbers(data.kind, BY_SITE)) == [said] * doubted


def test_two_words_for_yes_and_two_for_no_are_a_doubt():
    columns = {"a": ["yes", "N", "no", "Y"], "b": ["A", "B", "AB", "0"], "c": ["yes", "no", "yes", "no"]}
    data = dataset_of(
        {**{k: np.resize(v, 40) for k, v in columns.items()}, "label": np.resize([0, 1], 40)}, "label"
    )
    assert list(warn_about_pairs(data)) == [
        "columns: words? 'no' as well as 'N' and 'yes' as well as 'Y' in 'a'; if they mean the same, write "
        "one word for both"
    ]


WORDS = {
    "another spelling": (["F", "M"], ["female", "male"], True),
    "one spelling of both": (["F", "M"], ["female", "M"], False),
    "a device, of which a site may have one": (["GE", "Philips"], ["Siemens"], False),
    "wards that are called alike nowhere": (["A", "B", "C"], ["D", "E"], True),
    "codes, of which chance draws new ones": (["{site} {row}", *[""] * 7],) * 2 + (False,),
}


@pytest.mark.parametrize("name", WORDS)
def test_words_that_no_other_site_has_are_a_doubt(name):
    usual, own, doubted = WORDS[name]
    words = np.concatenate(
        [np.resize(np.array(own if site == "lyon" else usual, object), 60) for site in SITES]
    )
    words = np.array([word.format(site=row // 60, row=row) or None for row, word in enumerate(words)], object)
    data = dataset_of({"word": words, "lab": np.arange(180), "label": np.resize([0, 1], 180)}, "label")
    shown = ", ".join(map(repr, sorted(own)))
    said = (
        f"columns: words? no word of 'word' at lyon ({shown}) is found at another client; if they mean what "
        "others write, write the same words"
    )
    assert list(other_words(data.kind, BY_SITE)) == [said] * doubted


def test_a_run_says_all_of_its_sites_files(configured, tmp_path):
    (tmp_path / "d").mkdir()
    for site, factor in zip(SITES, (1, 1000, 1), strict=True):
        words = ("female", "male") if site == "lyon" else ("F", "M")
        rows = [
            f"{factor * (50 + i)},{'' if site == 'lyon' else i},{words[i % 2]},{i % 2}" for i in range(60)
        ]
        (tmp_path / "d" / f"{site}.csv").write_text("\n".join(["lab,b,sex,label", *rows]))
    inputs = inputs_of(configured(dataset=str(tmp_path / "d"), partition="natural:file", num_clients=3))
    said = " ".join(warnings_of_data(inputs))
    assert "units? 'lab' has a median of" in said
    assert "lacking? no training row has 'b' at lyon" in said
    assert "words? no word of 'sex' at lyon" in said


@pytest.mark.parametrize("late", [True, False])
def test_a_test_set_in_other_units_and_words_is_a_doubt(configured, tmp_path, late):
    """As after a laboratory's new device: split by time, and not where rows are drawn."""
    rows = [f"{5 + i % 7 / 10},{i},{'FM'[i % 2]},{i % 2},{2000 + i}" for i in range(60)]
    rows += [f"{90 + i % 7},,{('female', 'male')[i % 2]},{i % 2},{2060 + i}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["lab,b,sex,label,day", *rows]))
    keys = {"split_by": "day<2060"} if late else {"columns": "lab,b,sex"}
    inputs = inputs_of(configured(dataset=str(tmp_path / "t.csv"), num_clients=2, **keys))
    said = " ".join(line for line in warnings_of_data(inputs) if " in the test set" in line)
    for doubt in (
        "columns: units? 'lab' has a median of 5.3 in the training set and one of 93 in the test set, far",
        "columns: lacking? no row has 'b' in the test set, where",
        "columns: words? no word of 'sex' in the test set ('female', 'male') is found in the training set;",
    ):
        assert (doubt in said) == late


def test_a_later_year_and_its_months_are_no_doubt(configured, tmp_path):
    rows = {"train": [(2008 + i % 12, ["may", "jun", "jul"][i % 3]) for i in range(120)]}
    rows["test"] = [(2022, ["nov", "dec"][i % 2]) for i in range(60)]
    for name, of in rows.items():
        lines = [f"{i},{year},{month},{i * i % 7 % 2}" for i, (year, month) in enumerate(of)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["lab,year,month,label", *lines]))
    inputs = inputs_of(configured(dataset=str(tmp_path), num_clients=2))
    assert not [line for line in warnings_of_data(inputs) if " in the test set" in line]


def test_one_number_at_many_of_a_thousand_sites_is_looked_for_in_each_column_once(monkeypatch):
    """Counts that are 0 at 400 of 1000 sites of 20 rows, and of 0 to 10 elsewhere."""
    lab = np.where(np.arange(20000) % 1000 < 400, 0, np.arange(20000) // 1000 % 11)
    data = dataset_of({"lab": lab, "flag": lab > 0, "label": np.resize([0, 1], 20000)}, "label")
    shares = Shares.of([np.arange(i, 20000, 1000) for i in range(1000)])
    calls, unique = [], np.unique
    monkeypatch.setattr(np, "unique", lambda *args, **keys: calls.append(1) or unique(*args, **keys))
    (line,) = single_numbers(data.kind, Parts.of_clients(shares, []))
    assert "'lab' is 0 at client 0, 'lab' is 0 at client 1, " in line
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("most", "options", "doubted"),
    [(255, {}, True), (255, {"normalize": True}, False), (1, {}, False), (4000, {}, False)],
)
def test_floats_of_0_to_255_are_doubted_as_pictures(configured, tmp_path, most, options, doubted):
    (tmp_path / "own.py").write_text(
        "import numpy as np\n\ndef load(split):\n"
        f"    x = np.linspace(0, {most}, 40 * 64).reshape(40, 1, 8, 8).astype(np.float32)\n"
        "    y = np.arange(40) % 2\n    return x, y\n"
    )
    inputs = inputs_of(configured(dataset=f"{tmp_path / 'own.py'}:load", num_clients=2, **options))
    lines = [line for line in warnings_of_data(inputs) if "0..255?" in line]
    assert len(lines) == doubted


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_mask_next_to_whole_numbers_is_that_one(dtype):
    near = np.array([[[0.9999999, 1.00001], [-1e-7, 254.99999]]], dtype)
    assert as_masks(near, "y").tolist() == [[[1, 1], [0, 255]]]
    for wrong in (0.99, -0.01, 255.6, np.nan, 256):
        with pytest.raises(UserError, match="^y is "):
            as_masks(np.full((1, 2, 2), wrong, dtype), "y")


@pytest.mark.parametrize("name", ["modelcard", "methods.txt", "model.pt"])
def test_what_export_does_not_write_is_refused(capsys, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert main(["export", "runs", "--to", name]) == 2
    said = f"error: to: '{name}' is not allowed; expected one of methods, model-card, or a file that ends in "
    assert capsys.readouterr().err.startswith(f"{said}.onnx with format 'onnx'")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_no_matter_of_the_hub(configured):
    with pytest.raises(UserError, match=r"^dataset: no such file or folder: 'no-such-folder'; .*Hub"):
        _ = inputs_of(configured(dataset="no-such-folder")).dataset
