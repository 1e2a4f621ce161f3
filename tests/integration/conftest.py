"""Shared by the integration tests: what takes long to start."""

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedbn_flower.config.making import run_config
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation

from .processes import LONG, ROOT, SOONER, light_app, marked


@pytest.fixture
def marked_environment():
    """The mark of a test's own processes, and the environment that has it."""
    with marked() as mark_and_environment:
        yield mark_and_environment


@pytest.fixture(scope="module")
def hospital(tmp_path_factory, undrawn_project, cache_dir, write_site):
    from .hospital import hospital_in  # of the annex consortium

    folder = tmp_path_factory.mktemp("guide")
    with hospital_in(folder, undrawn_project, cache_dir, write_site) as guide:
        yield guide


@pytest.fixture(scope="session")
def flwr_project(tmp_path_factory):
    """A copy without the virtual environment, through whose files Flower looks for those of the app. What is
    compiled is copied, for programs and users that cannot write it, but what is just being written."""
    project = tmp_path_factory.mktemp("project") / "fedbn-flower"
    shutil.copytree(ROOT, project, ignore=shutil.ignore_patterns(".?*", "*.pyc.*", "runs", "tests"))
    shutil.copy(ROOT / ".gitignore", project)
    return project


@pytest.fixture(scope="session")
def undrawn_project(tmp_path_factory, flwr_project):
    """Such a copy whose server draws nothing and writes no report, which is half of a small run's work."""
    project = tmp_path_factory.mktemp("undrawn") / "fedbn-flower"
    shutil.copytree(flwr_project, project)
    with (project / "fedbn_flower" / "runtime" / "server_app.py").open("a") as file:
        file.write(f"{(ROOT / 'tests' / 'pictures.py').read_text()}\n\ndraw_none()\n")
    return project


@pytest.fixture(scope="session")
def undrawn_app(tmp_path_factory, undrawn_project):
    """The same as `light_app`."""
    return light_app(tmp_path_factory.mktemp("light") / "fedbn-flower", undrawn_project)


@pytest.fixture(scope="session")
def flwr_run(tmp_path_factory, flwr_project):
    """`flwr run`, by default of the project, on one managed SuperLink: what it printed."""
    home = tmp_path_factory.mktemp("flwr_home")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with marked() as (_, environment):
        environment |= {
            "FLWR_HOME": str(home),
            **{key: SOONER[key] for key in ("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "PYTHONPATH")},
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port),
            "RAY_prestart_worker_first_driver": "0",  # Flower's workers are none of those
            "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}",
        }

        def run(keys, supernodes, app=flwr_project, workers=1):
            words = (f"{key}={json.dumps(value, default=str)}" for key, value in keys.items())
            simulation = (
                f"num-supernodes={supernodes} client-resources-num-cpus=1 init-args-num-cpus={workers}"
            )
            command = ["flwr", "run", app, "--stream", "-c", " ".join(words)]
            for _ in range(3):  # Flower gives its SuperLink 15 s to start, which a busy machine may exceed
                result = subprocess.run(
                    [*command, "--federation-config", simulation],
                    cwd=home, env=environment, capture_output=True, text=True, timeout=LONG,
                )  # fmt: skip
                output = result.stdout + result.stderr
                if "Failed to start local SuperLink" not in output:
                    break
            run.status = result.returncode
            return output

        run.environment = environment
        yield run


@pytest.fixture
def one_worker(pool):
    """The pool, as if the second of its workers were not there."""
    return SimpleNamespace(
        workers=pool.workers[:1],
        start_run=pool.start_run,
        begin=pool.begin,
        replace=pool.replace,
        raylet=pool.raylet,
        inline=pool.inline,
        starting={},
        started=[0],
        grow=lambda: None,
        check_data=pool.check_data,
    )


@pytest.fixture
def on_all_workers(tmp_path, cache_dir, pool, one_worker, pictures_not_drawn, few_draws):
    """Runs the same keys in this process, on one worker, which sums answers as that does, and on two; the
    folders. Where no answers are summed, one worker does what each of two does."""

    def run(keys, summed=True):
        keys = {"dataset": "digits", **keys, "cache-dir": str(cache_dir)}
        folders = [tmp_path / keys.get("secagg", "off") / name for name in ("inline", "one", "two")]
        places = dict(zip(folders, (None, one_worker, pool), strict=True))
        if not summed:
            del places[folders[1]]
        for folder, workers in places.items():
            simulate(Federation(run_config(keys)), folder, workers)
        return [*places]

    return run
