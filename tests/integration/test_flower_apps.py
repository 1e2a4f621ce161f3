"""Apps written for Flower's strategies, under a real ``flwr run``, with only the import changed."""

import json
import shutil
from pathlib import Path

import pytest

from fedbn_flower import run_app
from tests.strategies.drop_in.scenarios import assert_same

from .processes import ROOT

pytestmark = pytest.mark.slow

APPS = Path(__file__).parent / "flower_apps"
NAMES = ("quickstart", "schedule", "records")
THEIRS, OURS = "from flwr.serverapp.strategy import", "from strategies import"


@pytest.fixture
def result(flwr_run):
    """Runs the app in a folder; what it wrote."""

    def run(folder):
        out = folder / "result.json"
        output = flwr_run({"out": out}, 3, app=folder)
        assert out.exists(), output
        return out.read_text()

    return run


BOTH = """
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

APPS = ("quickstart", "schedule", "records")
server = ServerApp()
client = ClientApp()


def part(app, side):
    return import_module(f"{app}_app.{side}_app")


def whose(message):
    return "records" if "global-model" in message.content else "quickstart"


@server.main()
def main(grid, context):
    for app in (*APPS, *(f"ours.{app}" for app in APPS)):
        config = {**context.run_config, "out": f"{context.run_config['out']}.{app}"}
        part(app, "server").main(
            grid, Context(context.run_id, context.node_id, context.node_config, context.state, config)
        )
    Path(context.run_config["out"]).touch()


@client.train()
def train(message, context):
    return part(whose(message), "client").train_fn(message, context)


@client.evaluate()
def evaluate(message, context):
    return part(whose(message), "client").evaluate_fn(message, context)
"""
"""An app that is three, one after the other, and these once more with our strategies."""


def all_in_one(folder):
    """The three apps in a folder, as one; with our strategies below ``ours``."""
    shutil.copytree(APPS / "quickstart", folder)
    for app in NAMES:
        for place in (folder, folder / "ours"):
            shutil.copytree(APPS / app / f"{app}_app", place / f"{app}_app", dirs_exist_ok=True)
    (folder / "quickstart_app" / "both.py").write_text(
        f"from importlib import import_module\nfrom pathlib import Path\n{BOTH}"
    )
    project = folder / "pyproject.toml"
    text = project.read_text()
    for side in ("server", "client"):
        text = text.replace(f"quickstart_app.{side}_app:app", f"quickstart_app.both:{side}")
    project.write_text(text)


def with_ours(folder):
    """Change the import of the apps below ``ours``, and send our strategies along."""
    shutil.copytree(ROOT / "strategies", folder / "strategies", ignore=shutil.ignore_patterns("__pycache__"))
    for app in NAMES:
        server = folder / "ours" / f"{app}_app" / "server_app.py"
        assert server.read_text().count(THEIRS) == 1
        server.write_text(server.read_text().replace(THEIRS, OURS))


def test_only_the_import_is_changed_and_both_engines_agree(result, tmp_path):
    """Of three apps, in one run with what they were. Flower's numbers to 1e-6, and the same names in the
    same order. `run_app` gives for all six what ``flwr run`` gives."""
    app = tmp_path / "app"
    all_in_one(app)
    with_ours(app)
    result(app)
    for name in NAMES:
        assert_same(
            *(json.loads((app / f"result.json.{place}{name}").read_text()) for place in ("", "ours."))
        )
    here = tmp_path / "here.json"
    run_app(app, run_config={"out": str(here)}, num_supernodes=3, backend="inline", run_dir=tmp_path / "run")
    for name in (f"{place}{name}" for place in ("", "ours.") for name in NAMES):
        theirs, found = app / f"result.json.{name}", tmp_path / f"here.json.{name}"
        assert_same(*(json.loads(path.read_text()) for path in (theirs, found)))
