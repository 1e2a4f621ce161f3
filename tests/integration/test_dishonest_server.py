"""A real SuperNode that is asked by a server that is not honest."""

import json
import shutil
from pathlib import Path

import pytest

from deploy.local_federation import LocalFederation
from fedbn_flower.config.making import run_config

from .guide import SOONER
from .processes import ROOT

pytestmark = pytest.mark.slow

LOCAL = {"dp": "local", "dp-noise": 8.0, "dp-delta": 1e-5}
OWNER = "dp-required=true dp-max-epsilon=3.0 dp-max-delta=1e-5 dp-min-noise=4.0"
UNTOLD = "privacy: with dp 'local' this site"


@pytest.fixture(scope="module")
def asked(tmp_path_factory, write_site, cache_dir):
    """What a site answers in runs of these keys, by question; and its log."""
    folder = tmp_path_factory.mktemp("dishonest")
    ignored = shutil.ignore_patterns(".?*", "__pycache__", "runs", "tests", "build", "dist")
    shutil.copytree(ROOT, folder / "app", ignore=ignored, symlinks=True)
    shutil.copy(Path(__file__).with_name("asks.py"), folder / "app/fedbn_flower/server_app.py")
    here = {"num-clients": 1, "partition": "iid", "cache-dir": str(cache_dir)}
    write_site(run_config(here), 0, folder / "data")
    node = f'data-path="{folder / "data"}" cache-dir="{folder / "cache"}" {OWNER}'
    federation = LocalFederation(folder / "federation", 1, node_config=node)
    federation.environment |= SOONER

    def answers(name, **keys):
        given = {"dataset": "shape:1x8x8:10", "model": "linear", "client": "fedavg", "num-clients": 1}
        given |= {"run-dir": str(folder / name), **keys}
        words = " ".join(f"{key}={json.dumps(value)}" for key, value in given.items())
        run = federation.run(
            ["flwr", "run", folder / "app", "local", "--stream", "--run-config", words], quiet=True
        )
        assert (folder / name).exists(), run.stdout + run.stderr
        return json.loads((folder / name).read_text())

    with federation:
        yield answers, (folder / "federation/site-0/log.txt").read_text


def test_it_learns_nothing_but_updates_with_noise(asked):
    """Each update is paid for, and an update that diverges is like any other."""
    answers, log = asked
    found = answers("local", **LOCAL)
    update = {"records": ["arrays", "memory", "metrics"], "metrics": {"num-examples": 1}}
    for name in ("train, with an evaluation", "train at a rate that diverges"):
        assert found.pop(name) == update
    assert found == {
        "evaluate": f"{UNTOLD.replace('site', 'client')} sends no metrics",
        "evaluate on training examples": f"{UNTOLD.replace('site', 'client')} sends no metrics",
        "counts": f"{UNTOLD} tells no counts of its data",
        "moments": f"{UNTOLD} tells no moments of its data",
        "sizes": f"{UNTOLD} does not tell how many examples it has",
    }
    assert log().count("refused: privacy: ") == 5


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"dp": "none"}, "dp: 'none' is not allowed at this site; expected 'example' or 'local'"),
        (
            {**LOCAL, "dp-noise": 1.0},
            "dp-noise: 1.0 is not allowed at this site; expected at least 4 (dp-min-noise)",
        ),
    ],
)
def test_it_gets_nothing_in_a_run_beyond_the_owners_bounds(asked, keys, line):
    answers, _ = asked
    found = answers(f"beyond-{keys.get('dp-noise', 0)}", **keys)
    assert set(found.values()) == {line}
