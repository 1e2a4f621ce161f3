"""Apps written for Flower's strategies, under a real ``flwr run``, with only the import changed."""

import json
import shutil
from pathlib import Path

import pytest

from tests.strategies.drop_in.scenarios import assert_same

from .processes import ROOT

pytestmark = pytest.mark.slow

APPS = Path(__file__).parent / "flower_apps"
THEIRS, OURS = "from flwr.serverapp.strategy import", "from strategies import"


@pytest.fixture
def result(flwr_run):
    """Runs the app in a folder; what it wrote."""

    def run(folder):
        out = folder / "result.json"
        told = flwr_run({"out": out}, 3, app=folder)
        assert out.exists(), told
        return json.loads(out.read_text())

    return run


@pytest.mark.parametrize("app", ["quickstart", "schedule", "records"])
def test_only_the_import_is_changed(app, result, tmp_path):
    """Flower's numbers to 1e-6, and the same names in the same order."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for folder in (theirs, ours):
        shutil.copytree(APPS / app, folder)
    shutil.copytree(ROOT / "strategies", ours / "strategies", ignore=shutil.ignore_patterns("__pycache__"))
    server = ours / f"{app}_app" / "server_app.py"
    assert server.read_text().count(THEIRS) == 1
    server.write_text(server.read_text().replace(THEIRS, OURS))
    assert_same(result(theirs), result(ours))


def test_an_app_with_packages_of_our_names_has_ours_too(result, tmp_path):
    folder = tmp_path / "app"
    shutil.copytree(APPS / "quickstart", folder)
    for name in ("strategies", "clients"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"WHOSE = 'the app, {name}'\n")
    server = folder / "quickstart_app" / "server_app.py"
    own = "import clients\nimport strategies\n\nassert 'the app' in strategies.WHOSE + clients.WHOSE\n"
    server.write_text(own + server.read_text().replace(THEIRS, "from fedbn_flower.strategies import"))
    assert result(folder)
