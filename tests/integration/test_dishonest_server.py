"""A real SuperNode that is asked by a server that is not honest."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("fedbn_flower.consortium")

from fedbn_flower.config.making import run_config
from fedbn_flower.consortium.local import LocalFederation

from .processes import FORKING, ROOT

pytestmark = pytest.mark.slow

LOCAL = {"dp": "local", "dp-noise": 8.0, "dp-delta": 1e-5}
OWNER = "dp-required=true dp-max-epsilon=3.0 dp-max-delta=1e-5 dp-min-noise=4.0"
UNTOLD = "privacy: with dp 'local' this site"


RUNS = {"protected": LOCAL, "unprotected": {"dp": "none"}, "with less noise": {**LOCAL, "dp-noise": 1.0}}


@pytest.fixture(scope="module")
def asked(tmp_path_factory, write_site, cache_dir):
    """What a site answers in each of the runs, by question; and its log of the first."""
    folder = tmp_path_factory.mktemp("dishonest")
    ignored = shutil.ignore_patterns(".?*", "__pycache__", "runs", "tests", "build", "dist")
    shutil.copytree(ROOT, folder / "app", ignore=ignored, symlinks=True)
    shutil.copy(Path(__file__).with_name("asks.py"), folder / "app/fedbn_flower/server_app.py")
    here = {"num-clients": 1, "partition": "iid", "cache-dir": str(cache_dir)}
    write_site(run_config(here), 0, folder / "data")
    node = f'data-path="{folder / "data"}" cache-dir="{folder / "cache"}" {OWNER}'
    federation = LocalFederation(folder / "federation", 1, node_config=node)
    federation.environment |= FORKING

    def start(name):
        given = {"dataset": "shape:1x8x8:10", "model": "linear", "client": "shared", "num-clients": 1}
        given |= {"run-dir": str(folder / name), **RUNS[name]}
        words = " ".join(f"{key}={json.dumps(value)}" for key, value in given.items())
        command = ["flwr", "run", str(folder / "app"), "local", "--stream", "--run-config", words]
        return subprocess.Popen(
            command, env=federation.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def answers(*names):
        outputs = [run.communicate(timeout=300)[0] for run in [start(name) for name in names]]
        assert all((folder / name).exists() for name in names), outputs
        return {name: json.loads((folder / name).read_text()) for name in names}

    with federation:
        first, *others = RUNS
        found = answers(first)
        log = (folder / "federation/site-0/log.txt").read_text()
        yield found | answers(*others), log


def test_it_learns_nothing_but_updates_with_noise(asked):
    """Each update is paid for, and an update that diverges is like any other."""
    answers, log = asked
    found = dict(answers["protected"])
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
    assert log.count("refused: privacy: ") == 5


@pytest.mark.parametrize(
    ("run", "line"),
    [
        ("unprotected", "dp: 'none' is not allowed at this site; expected 'example' or 'local'"),
        (
            "with less noise",
            "dp-noise: 1.0 is not allowed at this site; expected at least 4 (dp-min-noise)",
        ),
    ],
)
def test_it_gets_nothing_in_a_run_beyond_the_owners_bounds(asked, run, line):
    answers, _ = asked
    assert len(answers[run]) == 7
    assert set(answers[run].values()) == {line}
