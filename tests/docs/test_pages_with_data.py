"""Pages whose commands make data and run on them, as they stand there but on fewer: figures of every site."""

import json
import re
import subprocess
import sys
from contextlib import chdir
from html import unescape
from importlib.util import find_spec  # loads nothing: MONAI takes seconds

import pytest

from fedbn_flower.cli import main

from .pages import DOCS, ROOT, blocks_of
from .test_code_blocks import commands_of, flags_of_simulation

pytestmark = pytest.mark.slow

SITES = ["east", "north", "south"]
FEW = {"medical": ("--pictures", "15", "--patients", "500"), "volumes": ("--scans", "6")}
FIGURES = {
    "medical": {
        "findings": ("auroc", "f1"),
        "outcome": ("sensitivity-at:0.9", "auroc", "ece"),
        "head": ("auroc", "f1"),
        "lesions": ("dice", "iou"),
    },
    "volumes": {
        **dict.fromkeys(("fedbn", "fedavg", "monai", "patches"), ("dice",)),
        **dict.fromkeys(("screening-fedbn", "screening-fedavg"), ("auroc",)),
    },
}
"""The metrics that a page reads from the runs that it names."""


def blocks(page):
    return blocks_of(DOCS / "how-to" / f"{page}.md")


def run_commands(page, cache_dir):
    """The page's commands in the current folder, one round each."""
    here = ["--backend", "inline", "--cache-dir", str(cache_dir)]
    shown = [block for block in blocks(page) if block.language == "bash"]
    for words in (words for block in shown for words in commands_of(block)):
        arguments = flags_of_simulation(words)
        if words[0] == ".venv/bin/pip":
            continue
        if arguments is None:
            subprocess.run([sys.executable, ROOT / words[1], *words[2:], *FEW[page]], check=True)
            continue
        if "--rounds" in arguments:  # all but compare and inspect
            arguments[arguments.index("--rounds") + 1] = "1"
        assert main([*arguments, *here * (arguments[0] != "compare")]) == 0, words


@pytest.mark.usefixtures("pictures_not_drawn", "few_draws", "empty_figures")
@pytest.mark.parametrize("page", FIGURES)
def test_every_job_has_its_figures_by_site_and_inspect_says_what_is_quoted(page, cache_dir, tmp_path):
    if page == "volumes":
        for name in ("nibabel", "pydicom", "monai"):
            if find_spec(name) is None:
                pytest.skip(f"needs {name}, of the extras clinic and networks")
    with chdir(tmp_path):
        run_commands(page, cache_dir)
    folder = tmp_path / "runs"
    for name, metrics in FIGURES[page].items():
        summary, config = (
            json.loads((folder / name / f"{file}.json").read_text()) for file in ("summary", "config")
        )
        assert sorted(config["client-names"]) == SITES
        assert (len(summary["clients"]), summary["failures"]) == (len(SITES), 0)
        for metric in metrics:
            assert 0 <= summary["pooled"][metric] <= 1
            assert all(0 <= client[metric] <= 1 for client in summary["clients"].values()), (name, metric)
    if page == "volumes":
        assert {path.name for path in folder.iterdir()} == {*FIGURES[page], "scans"}
        assert_quoted((folder / "scans" / "inspect.html").read_text())


def assert_quoted(inspected):
    (quoted,) = (block.body for block in blocks("volumes") if block.language == "text")
    words = " ".join(quoted.split()).removeprefix("inputs ").replace("of 90 scans", "of 18 scans")
    found = " ".join(re.sub(r"<[^>]*>", " ", unescape(inspected)).split())
    assert words.replace("60 of", "12 of") in found
    assert "one slice is drawn" in found
