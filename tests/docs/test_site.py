"""The site: it builds without a warning, and its pages load nothing from the network."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from .pages import DOCS, ROOT, SITE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (find_spec("mkdocs") and find_spec("material") and find_spec("mkdocstrings")),
        reason="the extra docs is not installed",
    ),
]
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//|<link\b[^>]*\bhref=[\"']?(?:https?:)?//"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [ROOT / "scripts" / "docs", "--site-dir", str(folder)],
        env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr + done.stdout
    return folder


def test_every_page_is_built(site):
    for page in SITE:
        assert (site / page.relative_to(DOCS)).with_suffix(".html").exists()


def test_no_page_loads_anything_from_the_network(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(SITE)
    assert {str(page): found for page in pages if (found := LOADED.findall(page.read_text()))} == {}


def test_the_api_is_there(site):
    names = ("simulate", "Result.history", "Observer.on_round", "UserError", "load_model")
    text = "".join(page.read_text() for page in (site / "api").glob("*.html"))
    for name in names:
        assert f'id="fedbn_flower.{name}"' in text
    assert 'id="fedbn_flower.strategies.PseudoGradientStrategy.server_step"' in text
    assert 'id="fedbn_flower.clients.FedAvgClient.local_entries"' in text
