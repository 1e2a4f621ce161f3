"""docs/how-to/volumes.md as it stands, on fewer scans: every job has its figures by site."""

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

MISSING = [name for name in ("nibabel", "pydicom", "monai") if find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {MISSING}, of the extras clinic and networks"),
]

PAGE = DOCS / "how-to" / "volumes.md"
COMMANDS = [block for block in blocks_of(PAGE) if block.language == "bash"]
SITES = ["east", "north", "south"]
FIGURES = {
    "fedbn": "dice",
    "fedavg": "dice",
    "monai": "dice",
    "patches": "dice",
    "screening-fedbn": "auroc",
    "screening-fedavg": "auroc",
}
"""The metrics that the page reads from the runs that it names."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory, cache_dir, pictures_never_drawn, draws_always_few):
    """Runs the page's commands, one round each, and gives the folder of their runs."""
    folder = tmp_path_factory.mktemp("scans")
    here = ["--backend", "inline", "--cache-dir", str(cache_dir)]
    with chdir(folder):
        for words in (words for block in COMMANDS for words in commands_of(block)):
            arguments = flags_of_simulation(words)
            if words[0] == ".venv/bin/pip":
                continue
            if arguments is None:
                subprocess.run([sys.executable, ROOT / words[1], *words[2:], "--scans", "10"], check=True)
                continue
            if "--rounds" in arguments:  # all but inspect
                arguments[arguments.index("--rounds") + 1] = "1"
            assert main([*arguments, *here]) == 0, words
    return folder / "runs"


def test_every_job_has_its_figures_by_site(runs):
    assert {path.name for path in runs.iterdir()} == {*FIGURES, "scans"}
    for name, metric in FIGURES.items():
        summary = json.loads((runs / name / "summary.json").read_text())
        config = json.loads((runs / name / "config.json").read_text())
        assert sorted(config["client-names"]) == SITES
        assert summary["failures"] == 0
        assert 0 <= summary["pooled"][metric] <= 1
        assert all(0 <= client[metric] <= 1 for client in summary["clients"].values()), name


def test_inspect_says_what_the_page_quotes(runs):
    page = (runs / "scans" / "inspect.html").read_text()
    (quoted,) = (block.body for block in blocks_of(PAGE) if block.language == "text")
    words = " ".join(quoted.split()).removeprefix("inputs ").replace("of 90 scans", "of 30 scans")
    found = " ".join(re.sub(r"<[^>]*>", " ", unescape(page)).split())
    assert words.replace("60 of", "20 of") in found
    assert "one slice is drawn" in found
