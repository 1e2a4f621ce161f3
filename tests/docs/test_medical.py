"""docs/how-to/medical.md as it stands, on fewer pictures and patients: every job has its figures by site."""

import json
import subprocess
import sys
from contextlib import chdir

import pytest

from fedbn_flower.cli import main

from .pages import DOCS, ROOT, blocks_of
from .test_code_blocks import commands_of, flags_of_simulation

pytestmark = pytest.mark.slow

PAGE = DOCS / "how-to" / "medical.md"
SITES = ["east", "north", "south"]
FIGURES = {
    "findings": ("auroc", "f1"),
    "outcome": ("sensitivity-at:0.9", "auroc", "ece"),
    "head": ("auroc", "f1"),
    "lesions": ("dice", "iou"),
}
"""The metrics that the page reads from the runs that it names."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory, cache_dir, pictures_never_drawn, draws_always_few):
    """Runs the page's commands, one round each, and gives the folder of their runs."""
    folder = tmp_path_factory.mktemp("hospital")
    here = ["--backend", "inline", "--cache-dir", str(cache_dir)]
    with chdir(folder):
        for words in (words for block in blocks_of(PAGE) for words in commands_of(block)):
            arguments = flags_of_simulation(words)
            if arguments is None:
                made = [sys.executable, ROOT / words[1], *words[2:], "--pictures", "30", "--patients", "500"]
                subprocess.run(made, check=True)
                continue
            if arguments[0] == "compare":
                assert main(arguments) == 0, words
                continue
            if "--rounds" in arguments:  # all but inspect
                arguments[arguments.index("--rounds") + 1] = "1"
            assert main([*arguments, *here]) == 0, words
    return folder / "runs"


def test_every_job_has_its_figures_by_site(runs):
    for name, metrics in FIGURES.items():
        summary = json.loads((runs / name / "summary.json").read_text())
        config = json.loads((runs / name / "config.json").read_text())
        assert sorted(config["client-names"]) == SITES
        assert len(summary["clients"]) == len(SITES)
        for metric in metrics:
            assert 0 <= summary["pooled"][metric] <= 1
            assert all(0 <= client[metric] <= 1 for client in summary["clients"].values()), (name, metric)
