"""What is said of tables as people have them, before anything is learnt."""

import pytest

pytest.importorskip("fedbn_flower.inspection")

from fedbn_flower.config.making import run_config
from fedbn_flower.core.errors import UserError
from fedbn_flower.inspection.copies import warn_about_copies
from fedbn_flower.inspection.inputs import warn_about_columns
from fedbn_flower.inspection.leaks import warn_about_leaks
from fedbn_flower.inspection.targets import warn_about_labels
from fedbn_flower.job.inputs import inputs_of

from .tables import CASES


def said_of(case, folder):
    """Return the rows of notes on a case's data, or the line of its mistake."""
    data = folder / "data"
    data.mkdir()
    case.write(data)
    (first, *others) = data.iterdir()
    path = data if others or first.is_dir() else first
    keys = {name.replace("_", "-"): value for name, value in case.keys.items()}
    config = run_config({"dataset": str(path), "cache-dir": str(folder / "cache"), **keys})
    try:
        dataset = inputs_of(config).dataset
    except UserError as error:
        return str(error).replace(str(data), "DATA")
    rows = {}
    for note in dataset.notes:
        rows.setdefault(note.row, []).append(note.line)
    stated = config.predict != "auto" or "=" in config.label_column
    doubts = [
        *warn_about_leaks(dataset),
        *warn_about_columns(dataset, missing_values=config.missing_values),
        *warn_about_labels(dataset, stated, config.missing_values),
        *warn_about_copies(dataset),
    ]
    if doubts:
        rows["doubts?"] = doubts
    return rows


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_table_has_its_rows_or_one_line_says_what_to_do(case, tmp_path):
    said = said_of(case, tmp_path)
    assert said == case.says
    assert isinstance(said, dict) or "\n" not in said
