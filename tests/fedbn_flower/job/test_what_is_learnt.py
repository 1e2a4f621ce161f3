"""What is learnt, from what and from whom, as a run says it before its first round."""

import numpy as np
import pytest

from fedbn_flower.cli import main
from fedbn_flower.core.notes import ROWS, Note
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.job.what_is_learnt import what_is_learnt
from fedbn_flower.results.report.run_page import run_page
from fedbn_flower.results.run_reader import Run
from fedbn_flower.server.federation import Federation
from tests.docs.pages import DOCS, blocks_of

PATIENTS = "age,sex,hospital,ill\n" + "".join(
    f"{30 + i},{'mf'[i % 2]},{'ab'[i > 13]},{i % 3 // 2}\n" for i in range(20)
)


@pytest.fixture
def patients(tmp_path):
    path = tmp_path / "patients.csv"
    path.write_text(PATIENTS)
    return {"dataset": str(path), "label_column": "ill", "model": "linear", "client": "shared"}


def lines(config, **site):
    notes = what_is_learnt(inputs_of(config, **site))
    return [(row, [note.text for note in notes if note.row == row]) for row in ROWS]


def test_the_digits(configured):
    found = dict(lines(configured(partition="silos:0-4,5-7", val_fraction=0.1)))
    assert found["target"][0].startswith("10 classes: 0 (142), 1 (146), 2 (142)")
    assert found["inputs"] == ["images of 1 x 8 x 8 (channels, height, width)"]
    assert found["examples"] == [
        "1294 to train on, 143 for validation, 360 to test on",
        "each client is evaluated on its own test examples, since client 'fedbn' keeps a part of the model "
        "at home",
    ]
    assert found["clients"][0].startswith("2 by partition 'silos:0-4,5-7': 0 (")
    assert "2 of 10 classes" in found["left out"][0]


def test_a_table(configured, patients):
    """By owner and class there are 10, 4, 4 and 2 rows, in this order, of which every fifth is held out."""
    config = configured(partition="natural:hospital", num_clients=2, **patients)
    found = dict(lines(config))
    assert found["target"][:2] == ["column 'ill'", "2 classes: 0 (11), 1 (5)"]
    assert found["inputs"][0] == "2 columns: age (number), sex (f, m)"
    assert found["clients"] == ["2 by partition 'natural:hospital': a (12), b (4)"]
    assert found["examples"][0] == "16 to train on, 4 to test on"


PRIVATE = {
    "dp": "example", "dp_noise": 1.0, "dp_delta": 0.1, "dp_clip": 1.0, "label_column": "ill=0|1",
    "columns": "age,sex=f|m", "client": "shared",
}  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, ["numbers are standardised by the mean and deviation of each client's own training rows"]),
        ({"normalize": True}, ["numbers are standardised by the mean and deviation of all training rows"]),
        (
            {"normalize": "median"},
            ["numbers are standardised by the medians of the clients' means and deviations"],
        ),
        (
            {"reference": "pooled"},
            ["numbers are standardised by the mean and deviation of all training rows"],
        ),
        (PRIVATE | {"dp_scale": "age=60:9"}, ["numbers are standardised by the public dp-scale 'age=60:9'"]),
        (PRIVATE, ["numbers are not standardised"]),
        ({"columns": "sex"}, []),
    ],
)
def test_a_table_says_by_which_rows_its_numbers_are_standardised(configured, patients, keys, said):
    """Methods and model card have these words, too: they said nothing of it."""
    config = configured(partition="natural:hospital", num_clients=2, **patients | keys)
    assert [line for line in dict(lines(config))["inputs"] if "standardised" in line] == said


def test_a_label_column_that_was_found_is_a_guess(configured, tmp_path):
    (tmp_path / "t.csv").write_text(PATIENTS.replace("ill", "outcome"))
    config = configured(dataset=str(tmp_path / "t.csv"), partition="iid", model="linear", client="shared")
    found = [note.line for note in what_is_learnt(inputs_of(config)) if note.row == "target"]
    assert found[0] == "column 'outcome' (guessed; label-column decides)"


def test_many_are_counted_and_some_named(begun):
    x, y = np.random.default_rng(0).normal(size=(240, 3)), np.arange(240) % 12
    texts = {note.row: note.text for note in begun(data=(x, y, x, y), num_clients=12).learnt}
    assert texts["target"] == f"12 classes: {', '.join(f'{i} (20)' for i in range(10))} and 2 more"
    assert texts["clients"] == "12 by partition 'iid', of 20 to 20 training examples"
    assert texts["inputs"] == "3 numbers"


def test_numbers(begun):
    """Always predicting the mean has the squared deviation as its loss: of 12 in steps of d, 143 d² / 12."""
    x = np.arange(12.0)[:, None]
    said = "a number, 0 to 2.75 (mean 1.38, standard deviation 0.863)"
    assert begun(data=(x, x / 4, x, x)).learnt[0] == Note("target", said)


def test_labels_are_counted_by_those_that_have_them(begun):
    """Of 12 examples every second is in one label, every third in the other."""
    x, y = np.arange(12.0)[:, None], np.stack([np.arange(12) % 2 == 0, np.arange(12) % 3 == 0], 1)
    learnt = begun(data=(x, y, x[:3], y[:3]), problem="multi-label").learnt
    assert learnt[0] == Note("target", "2 labels: 0 (6), 1 (4)")


def test_clients_that_differ_in_blanks_only_are_quoted(configured, patients, tmp_path):
    (tmp_path / "patients.csv").write_text(PATIENTS.replace(",b,", ",a ,"))
    found = dict(lines(configured(partition="natural:hospital", num_clients=2, **patients)))
    assert found["clients"][0] == "2 by partition 'natural:hospital': 'a' (12), 'a ' (4)"


def test_a_server_without_data_says_what_it_expects(configured):
    labels = configured(dataset="shape:6:3:numbers", problem="multi-label", partition="iid")
    assert dict(lines(labels))["target"] == ["3 labels, as the dataset 'shape:6:3:numbers' says"]
    found = dict(lines(configured(dataset="shape:1x8x8:10")))
    assert found["target"] == ["10 classes, as the dataset 'shape:1x8x8:10' says"]
    assert found["clients"] == ["SuperNodes, each with its own data or the same"]


def test_a_site_says_it_of_its_own_data(configured, patients):
    """A fifth of the 20 rows is held out, and a quarter of the 16 others is for validation."""
    values = {"columns": "age,sex=f|m", "val_fraction": 0.25} | patients | {"dataset": "shape:3:2"}
    found = dict(lines(configured(**values), data_path=patients["dataset"]))
    assert found["clients"] == [f"this site, {patients['dataset']}"]
    assert found["examples"][0] == "12 to train on, 4 for validation, 4 to test on"


@pytest.mark.slow
def test_a_run_a_dry_run_and_inspect_show_it(patients, tmp_path, capsys, cache_dir):
    pytest.importorskip("fedbn_flower.inspection")
    flags = [word for key, value in patients.items() for word in (f"--{key.replace('_', '-')}", value)]
    flags += ["--partition", "iid", "--backend", "inline", "--cache-dir", str(cache_dir), "--rounds", "1"]
    for words in (["--run-dir", str(tmp_path / "run")], ["--dry-run"]):
        assert main([*flags, *words]) == 0
        assert "3 columns: age (number), sex (f, m)" in " ".join(capsys.readouterr().out.split())
    assert main(["inspect", "--to", str(tmp_path / "inspect"), *flags]) == 0
    assert "3 columns: age (number), sex (f, m)" in " ".join(capsys.readouterr().out.split())
    pages = run_page(Run.read(tmp_path / "run")), (tmp_path / "inspect" / "inspect.html").read_text()
    assert all("3 columns: age (number), sex (f, m)" in page for page in pages)


def test_the_table_of_the_guide_is_that_of_the_default_job(capsys, cache_dir):
    assert main(["--dry-run", "--backend", "inline", "--cache-dir", str(cache_dir)]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    (block,) = (block for block in blocks_of(DOCS / "how-to/own-data.md") if block.language == "text")
    assert block.body.splitlines() == printed[: len(block.body.splitlines())]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, []),
        ({"client_optimizer": "rmsprop", "client_momentum": 0.9}, []),
        (
            {"client_optimizer": "adamw:eps=1e-6"},
            ["client-optimizer 'adamw:eps=1e-6' with weight-decay 0; torch's default is 0.01"],
        ),
        ({"client_optimizer": "adamw", "weight_decay": 0.01}, []),
    ],
)
def test_keys_of_the_optimiser_that_are_not_torchs_defaults_are_noted_not_warned_of(
    configured, keys, expected
):
    federation = Federation(configured(**keys))
    assert [note.line for note in federation.learnt if note.row == "training"] == expected
    assert federation.warnings == []
