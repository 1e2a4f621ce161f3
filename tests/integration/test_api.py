"""`simulate` on real Ray, from a script whose classes no worker can import."""

import re
import subprocess
import sys

import pytest

from .processes import LONG, ROOT, STUBS, bits, processes_with

pytestmark = pytest.mark.slow

OWN = (ROOT / "tests" / "fedbn_flower" / "api" / "own_objects.py").read_text()
DEFINITIONS = (
    f"{OWN}\n"
    + """
import json, sys
import ray
from tests.pictures import draw_none
from fedbn_flower import RunFailed, UserError, simulate

draw_none()
width = 12
own = {
    "strategy": Scaled, "scale": 0.5, "client": KeepsBiases, "objective": Pull, "pull": 0.1,
    "model": lambda spec: nn.Sequential(
        nn.Flatten(), nn.Linear(spec.size, width), nn.BatchNorm1d(width), nn.Linear(width, spec.classes)
    ),
}
common = {"rounds": 2, "cache_dir": sys.argv[1], "workers": 1, "backend": "ray", "progress": False}
here = common | {"backend": "inline"}
"""
)


@pytest.fixture
def script(tmp_path, cache_dir, marked_environment):
    """Runs these lines after `DEFINITIONS` from standard input, as a REPL does, and gives what they print."""

    def run(lines):
        environment = marked_environment[1] | {"PYTHONPATH": f"{STUBS}:{ROOT}"}
        environment["RAY_prestart_worker_first_driver"] = "0"  # in a Ray that runs already, none are ours
        result = subprocess.run(
            [sys.executable, "-", str(cache_dir)],
            input=DEFINITIONS + lines, cwd=tmp_path, env=environment,
            capture_output=True, text=True, timeout=LONG,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        assert "Traceback" not in result.stderr
        return result.stdout

    return run


def test_own_objects_reach_the_workers_and_what_cannot_be_sent_is_one_line(
    script, tmp_path, marked_environment
):  # fmt: skip
    """Of a Ray that is started, which has ended; and of one that runs already, which is used and left as it
    was, also if something cannot be sent, or a worker cannot load what it is sent."""
    output = script("""
simulate(**own, **common, run_dir="ray")
assert not ray.is_initialized()
simulate(**own, **here, run_dir="inline")
ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
kept = ray.put("kept")
simulate(**own, **common, run_dir="running")
import threading, types
lock = threading.Lock()
class Locked(KeepsBiases):
    held = lock
for wrong in ({"client": Locked}, {"workers": 3}, {"ray_address": "localhost:6379"}):
    try:
        simulate(**{**common, **wrong})
    except UserError as error:
        print(error)
sys.modules["ghost"] = ghost = types.ModuleType("ghost")
KeepsBiases.__module__, ghost.KeepsBiases = "ghost", KeepsBiases
try:
    simulate(client=KeepsBiases, **common)
except RunFailed as error:
    print(error)
assert ray.is_initialized() and ray.get(kept) == "kept"
""")
    locked, workers, address, ghost = output.splitlines()
    assert re.fullmatch(r"Locked@\d+: cannot be sent to Ray's workers \(.*", locked)
    assert workers == "workers: 3 is not allowed; expected at most 2, the cores that the running Ray has free"
    assert address.startswith("ray-address: 'localhost:6379' is not allowed; expected none: this process")
    assert "No module named 'ghost'" in ghost
    assert bits(tmp_path / "ray") == bits(tmp_path / "running") == bits(tmp_path / "inline")
    assert not processes_with(marked_environment[0])
