"""Names that anybody may have written are seen, and do nothing to a terminal."""

import doctest

import numpy as np
import pytest
from PIL import Image

from fedbn_flower.core import text
from fedbn_flower.core.text import visible
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation


def test_what_is_not_seen_is_spelt_out():
    assert visible("Größe 3, µm") == "Größe 3, µm"
    assert visible("a\x1b[31m\n\x9b\u202eb") == r"a\x1b[31m\n\x9b\u202eb"
    assert doctest.testmod(text).failed == 0


def test_names_of_classes_and_sites_are_text_in_the_log_and_the_files(configured, tmp_path, capfd):
    """Two sites of two classes, one of each with a screen's end in its name."""
    pytest.importorskip("fedbn_flower.files")
    rng = np.random.default_rng(0)
    for site in ("north", "so\x1b[2Juth"):
        for label in ("benign", "malig\x1b]0;owned\x07nant"):
            folder = tmp_path / "data" / site / label
            folder.mkdir(parents=True)
            for i in range(6):
                Image.fromarray(rng.integers(0, 255, (8, 8), np.uint8)).save(folder / f"{i}.png")
    keys = {"dataset": str(tmp_path / "data"), "partition": "natural:folder", "client": "shared", "rounds": 1}
    config = configured(**keys, val_fraction=0.0, model="linear")
    assert inputs_of(config).client_names == ("north", r"so\x1b[2Juth")
    simulate(Federation(config), tmp_path / "run", None)
    assert r"malig\x1b]0;owned\x07nant" in (tmp_path / "run" / "classes.csv").read_text()
    written = "".join(path.read_text() for path in (tmp_path / "run").glob("*.csv")) + "".join(
        capfd.readouterr()
    )
    assert "\x1b[2J" not in written
    assert "\x1b]0" not in written
