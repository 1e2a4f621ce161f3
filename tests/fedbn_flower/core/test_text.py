"""Names that anybody may have written are seen, and do nothing to a terminal."""

import doctest
import re

import numpy as np
import pytest
from PIL import Image

from fedbn_flower.cli import main
from fedbn_flower.core import text
from fedbn_flower.core.text import visible
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation

from ..results.html_page import Page

ONE_OF_SEVERAL = re.compile(r"(?<![\w.,:/=±-]) ?\b1 (?:[a-z-]+ )?[a-z-]+(?<!s)s\b(?! left-out)")


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


def test_one_of_a_thing_is_called_so(tmp_path, monkeypatch, capsys):
    """A site, a round, an epoch, a trial and a run."""
    pytest.importorskip("fedbn_flower.files")
    pytest.importorskip("fedbn_flower.search")
    monkeypatch.chdir(tmp_path)
    rows = [f"lyon,{i % 7},{('no', 'yes')[i % 2]}" for i in range(60)]
    (tmp_path / "one.csv").write_text("\n".join(["site,age,died", *rows]))
    keys = "--dataset one.csv --label-column died --partition natural:site --model linear --client shared"
    words = f"{keys} --rounds 1 --local-epochs 1 --backend inline".split()
    assert main([*words, "--run-dir", "run"]) == 0
    assert main([*words, "--search", "client-lr=0.01..0.1", "--trials", "1", "--run-dir", "found"]) == 0
    assert main(["inspect", *keys.split()[1:], "--to", "seen"]) == 0
    assert main(["report", "run"]) == main(["report", "found"]) == main(["runs", "."]) == 0
    pages = [Page(path.read_text()) for path in tmp_path.rglob("*.html")]
    texts = [*(line for page in pages for lines in page.text.values() for line in lines)]
    texts += [cell for page in pages for row in page.rows for cell in row]
    said = " | ".join([*capsys.readouterr().out.splitlines(), *texts])
    assert len(pages) == 3
    assert "1 client trained" in said
    assert "1 round" in said
    assert ONE_OF_SEVERAL.findall(said) == []
