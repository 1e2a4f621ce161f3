"""A site that says late which partition it holds, and runs that take turns: on real SuperNodes."""

import csv
import re
import shutil
import subprocess

import pytest
from safetensors.numpy import load_file

pytest.importorskip("fedbn_flower.consortium")

from fedbn_flower.config.making import run_config
from fedbn_flower.consortium.local import LocalFederation
from fedbn_flower.job.participation import held_out_clients
from fedbn_flower.results.checkpoints.checkpoint_folder import CheckpointFolder
from fedbn_flower.runtime.inline import InlineGrid
from fedbn_flower.server.federation import Federation

from .hospital import model, rounds_done, wait_for
from .processes import FORKING, ROOT, kill_servers, marked

pytestmark = pytest.mark.slow

CLIENTS = 2
JOB = {"num-clients": CLIENTS, "partition": "iid", "client": "fedbn", "local-epochs": 1}
LATE = '''

def answer_partition_id(message: Message, context: Context, answer=answer_partition_id) -> Message:
    """Wait while there is a file of the partition's name."""
    import time
    from pathlib import Path
    while (Path({folder!r}) / f"late-{{partition_id_of(context)}}").exists():
        time.sleep(0.1)
    return answer(message, context)
'''


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """Two SuperNodes with a state-dir, and the folder of an app whose answers can be held up."""
    folder = tmp_path_factory.mktemp("sites")
    ignored = shutil.ignore_patterns(".?*", "__pycache__", "runs", "tests", "build", "dist")
    shutil.copytree(ROOT, folder / "app", ignore=ignored, symlinks=True)
    with (folder / "app/fedbn_flower/core/partition_id.py").open("a") as file:
        file.write(LATE.format(folder=str(folder)))
    settings = folder / "app/strategies/signature.py"
    settings.write_text(settings.read_text().replace('"query_timeout": 120.0', '"query_timeout": 30.0'))
    with marked() as (_, environment):
        federation = LocalFederation(folder / "federation", CLIENTS)
        federation.environment |= FORKING | {"FEDBN_TEST": environment["FEDBN_TEST"]}
        with federation:
            yield folder, federation


def start(sites, name, cache_dir, **keys):
    """``flwr run`` in the background; its output goes to a file."""
    folder, federation = sites
    keys = {**JOB, "cache-dir": str(cache_dir), "run-dir": str(folder / name), **keys}
    words = " ".join(f"{key}={value!r}" for key, value in keys.items())
    log = (folder / f"{name}.log").open("a")
    command = ["flwr", "run", folder / "app", "local", "--stream", "--run-config", words]
    return subprocess.Popen(
        list(map(str, command)), cwd=folder, env=federation.environment, stdout=log, stderr=subprocess.STDOUT
    )


def simulated(cache_dir, **keys):
    config = run_config({**JOB, "cache-dir": str(cache_dir), **keys})
    arrays = Federation(config).run(InlineGrid(CLIENTS, config.to_user_config()), [])
    return {name: array.numpy().tobytes() for name, array in arrays.items()}


def test_a_held_out_client_that_is_late_does_not_train(sites, cache_dir):
    """Its SuperNode answers the query for its partition when the server has warned of it."""
    folder, _ = sites
    keys = {"rounds": 2, "holdout-clients": 1, "seed": 3}
    (new,) = held_out_clients(3, CLIENTS, 1)
    wait, log = folder / f"late-{new}", folder / "held-out.log"
    wait.touch()
    run = start(sites, "held-out", cache_dir, **keys)
    wait_for(
        lambda: (
            "did not say within 30 s which partition it holds" in log.read_text() or run.poll() is not None
        )
    )
    wait.unlink()
    assert run.wait(timeout=300) == 0
    output = log.read_text()
    assert len(re.findall("WARNING.*node [0-9]+ is connected, and did not say within 30 s", output)) == 1, (
        output
    )
    assert model(folder / "held-out") == simulated(cache_dir, **keys), output
    with (folder / "held-out/clients.csv").open() as file:
        rows = [(row["phase"], int(row["partition"])) for row in csv.DictReader(file)]
    assert {p for phase, p in rows if phase == "train"} == set(range(CLIENTS)) - {new}
    assert {p for phase, p in rows if phase == "new"} == {new}


def test_a_run_that_was_killed_finds_its_memories_after_two_others(sites, cache_dir):
    """Its server is killed after its first checkpoint; then two other runs of the same sites are complete."""
    folder, federation = sites
    keys = {"rounds": 3, "seed": 1, "fraction-evaluate": 0.0}
    run = start(sites, "first", cache_dir, **keys)
    checkpoints = CheckpointFolder(folder / "first" / "checkpoint")
    wait_for(lambda: checkpoints.last_round() >= 1 or run.poll() is not None)
    kill_servers(federation.services["superlink"])
    run.wait(timeout=300)
    done = rounds_done(folder / "first")
    assert 1 <= done < 3, (folder / "first.log").read_text()
    for number, name in enumerate(("second", "third")):
        assert (
            start(sites, name, cache_dir, **keys | {"rounds": 1, "seed": 5 + number}).wait(timeout=300) == 0
        )
        assert rounds_done(folder / name) == 1, (folder / f"{name}.log").read_text()
    assert start(sites, "first", cache_dir, **keys, resume=str(folder / "first")).wait(timeout=300) == 0
    output = (folder / "first.log").read_text()
    assert f"resuming {folder / 'first'} after round" in output
    assert model(folder / "first") == simulated(cache_dir, **keys), output
    assert "kept a memory" not in output
    assert "have not heard that the run is complete" not in output
    for site in range(CLIENTS):
        files = [path.name for path in (folder / f"federation/site-{site}/state/default").iterdir()]
        runs = sorted({name.split("-", 2)[2][:30] for name in files})
        # Of "second", "third" and "first" the last two that were complete: a memory and a mark each.
        assert len(runs) == 2, files
        assert len(files) == 4, files
        (memory,) = (folder / f"federation/site-{site}/state/default").glob(f"*{runs[0]}*.safetensors")
        assert memory.stem.endswith("-000003")
        assert load_file(memory)
