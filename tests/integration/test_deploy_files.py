"""deploy/Dockerfile and deploy/slurm.sh: what they copy exists, what they run is understood, and it runs."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fedbn_flower.cli.parser import parse_command_line
from fedbn_flower.core.files import path_of
from fedbn_flower.names import APP

DOCKERFILE, SLURM = APP / "deploy" / "Dockerfile", APP / "deploy" / "slurm.sh"


def instructions():
    """The Dockerfile's instructions with their words, in order."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.M).replace("\\\n", " ")
    return [line.split(maxsplit=1) for line in text.splitlines() if line]


def comment(path):
    """The commands in a file's first comment."""
    lines = (line[4:] for line in path.read_text().splitlines() if line.startswith("#   "))
    return [shlex.split(line) for line in lines]


def test_what_the_image_copies_and_installs_exists():
    project = tomllib.loads((APP / "pyproject.toml").read_text())
    copied = set()
    for kind, words in instructions():
        if kind == "COPY":
            *sources, target = words.split()
            assert all((APP / source).exists() for source in sources)
            assert len(sources) > 1 or target == sources[0]
            copied |= set(sources)
    assert {*project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"], "pyproject.toml"} <= copied
    assert {project["project"]["readme"], *project["project"]["license-files"]} <= copied
    installed = [words for kind, words in instructions() if kind == "RUN" and words.startswith("pip")]
    for package in ("torch", "torchvision"):
        (wanted,) = (one for one in project["project"]["dependencies"] if re.match(rf"{package}\W", one))
        assert f'"{wanted}"' in installed[0]
    extras = re.search(r"\[(.*)\]", installed[1])[1].split(",")
    assert set(extras) <= project["project"]["optional-dependencies"].keys()


def test_the_image_is_built_as_is_good_practice():
    kinds = [kind for kind, _ in instructions()]
    words = dict(instructions())
    assert re.fullmatch(r"python:3\.\d+-slim", words["FROM"])
    assert kinds.count("FROM") == 1
    assert "ADD" not in kinds
    assert words["USER"] not in ("root", "0")
    assert kinds.index("USER") > max(i for i, kind in enumerate(kinds) if kind == "RUN")
    assert json.loads(words["CMD"])[0] == "fedbn-sim"
    assert all(w.startswith("/") for kind, w in instructions() if kind == "WORKDIR")


@pytest.mark.parametrize("words", comment(DOCKERFILE), ids=" ".join)
def test_the_commands_of_the_image_are_understood(words):
    if words[1] == "build":
        assert words[words.index("-f") + 1] == "deploy/Dockerfile"
        return
    assert words[:3] == ["docker", "run", "--rm"]
    program = words[words.index("fedbn-flower") + 1 :]
    assert program[0] == "fedbn-sim"
    parse_command_line(program[1:])


@pytest.mark.parametrize("words", comment(SLURM), ids=" ".join)
def test_the_commands_of_slurm_are_understood(words):
    place = words.index("deploy/slurm.sh")
    assert words[0] == "sbatch"
    parse_command_line([*words[place + 1 :], "--backend", "ray", "--ray-address", "10.0.0.1:6379"])


def test_the_script_is_bash():
    subprocess.run(["bash", "-n", SLURM], check=True)
    assert os.access(SLURM, os.X_OK)


STUBS = {
    # The options of srun, and then the command, here; of several tasks one.
    "srun": 'while [ "${1#--}" != "$1" ]; do echo "$1" >> srun.log; shift; done\nexec "$@"',
    "scontrol": 'echo "node1"; echo "node2"',
    "hostname": "echo 127.0.0.1",
}


STARTED = """
if [ "$1" = start ]; then echo "$@" >> ray.log; sleep 1; else grep -q -- --head ray.log; fi
"""
"""A stand-in for Ray, which is there once its head was started."""


@pytest.fixture
def cluster(tmp_path):
    """A folder with the checkout's parts and stand-ins for Slurm's programs: returns what runs a job."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, body in STUBS.items():
        (programs / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (programs / name).chmod(0o755)
    for name in ("run_sim.py", "fedbn_flower", "strategies", "clients", "pyproject.toml"):
        (tmp_path / name).symlink_to(APP / name)

    def run(nodes, *flags, ray="", cores=2, seconds=280):
        if ray:
            (programs / "ray").write_text(f"#!/usr/bin/env bash\n{ray}\n")
            (programs / "ray").chmod(0o755)
            (programs / "python").write_text(
                '#!/usr/bin/env bash\nsleep 1; printf "%s\\n" "$@" > python.log\n'
            )
            (programs / "python").chmod(0o755)
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(programs), str(path_of(sys.executable).parent), os.environ["PATH"]]),
            "SLURM_SUBMIT_DIR": str(tmp_path),
            "SLURM_JOB_NODELIST": "node[1-2]",
            "SLURM_JOB_NUM_NODES": str(nodes),
            "SLURM_CPUS_PER_TASK": str(cores),
            "SLURM_JOB_ID": str(os.getpid()),
        }
        command = ["bash", SLURM, *flags]
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=seconds
        )

    return run


@pytest.mark.slow
def test_a_job_starts_ray_on_every_node_and_runs_there(cluster, tmp_path):
    """With a stand-in for Ray: the head on the first node, one worker on each other one."""
    done = cluster(3, "--rounds", "4", ray=STARTED)
    assert done.returncode == 0, done.stderr
    head, others = (tmp_path / "ray.log").read_text().splitlines()
    port = 20000 + os.getpid() % 10000
    assert "start --head --block" in head
    assert f"--node-ip-address=127.0.0.1 --port={port} --num-cpus=2" in head
    assert f"--address=127.0.0.1:{port} --num-cpus=2" in others
    assert "--nodes=2\n--ntasks=2\n--exclude=node1" in (tmp_path / "srun.log").read_text()
    words = (tmp_path / "python.log").read_text().split()
    assert words[0] == "run_sim.py"
    (config,) = parse_command_line(words[1:]).configs
    assert (config.ray_address, config.workers, config.rounds) == (f"127.0.0.1:{port}", 6, 4)
    assert config.run_dir == f"runs/slurm-{os.getpid()}"
    done = cluster(1, "--run-dir", "runs/mine", ray=STARTED)
    assert done.returncode == 0, done.stderr
    assert "slurm-" not in (tmp_path / "python.log").read_text()


@pytest.mark.slow
def test_a_job_ends_if_ray_does(cluster):
    done = cluster(1, ray="exit 1", seconds=60)
    assert done.returncode != 0


@pytest.mark.slow
def test_a_job_on_one_node_runs_with_real_ray(cluster, tmp_path):
    """It leaves no sign by which another program on the machine would look for its Ray."""
    here = Path("/tmp/ray/ray_current_cluster")
    before = here.exists()
    done = cluster(1, "--rounds", "1", "--num-clients", "2", cores=1)
    shutil.rmtree(f"/tmp/ray-{os.getpid()}")
    assert here.exists() == before
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "runs" / f"slurm-{os.getpid()}" / "summary.json").read_text())
    assert (summary["rounds"], summary["failures"]) == (1, 0)
