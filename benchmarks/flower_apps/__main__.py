"""Flower's examples and baselines: equal results, and seconds of the whole process, on both engines.

    python -m benchmarks.flower_apps PATH_OF_FLOWERS_REPOSITORY [--only NAME,...] [--extra DIR]

Every app runs unchanged with ``flwr run`` (a SuperLink of its own is already up) and with ``fedbn-sim app``.
Their downloads are replaced by small data sets, and both engines seed random numbers alike; see ``shim``.

Equal: the largest relative difference of any metric, final array and client's reply. Legacy servers take
replies in random order under Flower, so sums differ in their last digits. "rounds alone" is the time in the
ServerApp.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT = 300  # seconds


@dataclass(frozen=True)
class App:
    """An app of Flower's repository, or in a folder of its own, and how it is run."""

    path: str
    nodes: int = 4
    config: str = ""
    rows: int = 400
    """Of the data set that is made for it."""


EVERYBODY = "fraction-evaluate=1.0"
XGBOOST = "params.nthread=1 fraction-train=1.0 fraction-evaluate=1.0 num-server-rounds=2"
OWN = HERE / "apps/small"
APPS = {
    "small-1-round": App(str(OWN), 10),
    "small-5-rounds": App(str(OWN), 100, "num-server-rounds=5"),
    "advanced-pytorch": App(
        "examples/advanced-pytorch", 4, f"num-server-rounds=2 fraction-train=1.0 {EVERYBODY}"
    ),
    "custom-mods": App("examples/custom-mods", 4, EVERYBODY),
    "federated-kaplan-meier-fitter": App("examples/federated-kaplan-meier-fitter", 2),
    "federated-vae": App("examples/federated-vae", 4, "num-server-rounds=2"),
    "fl-tabular": App("examples/fl-tabular", 5),
    "fl-dp-sa": App("examples/fl-dp-sa", 4, "num-shares=3 reconstruction-threshold=2"),
    "flower-secure-aggregation": App(
        "examples/flower-secure-aggregation", 5, "is-demo=false num-server-rounds=2 fraction-evaluate=1.0"
    ),
    "opacus": App("examples/opacus", 2, "num-server-rounds=2"),
    "quickstart-catboost": App("examples/quickstart-catboost", 3, "num-server-rounds=2"),
    "quickstart-monai": App(
        "examples/quickstart-monai", 2, "num-server-rounds=1 fraction-train=1.0 batch-size=8", rows=36
    ),
    "quickstart-numpy": App("examples/quickstart-numpy", 10),
    "quickstart-pandas": App("examples/quickstart-pandas", 5),
    "quickstart-pennylane": App(
        "examples/quickstart-pennylane", 2, f"num-server-rounds=1 local-epochs=1 {EVERYBODY}", rows=40
    ),
    "quickstart-pytorch": App("examples/quickstart-pytorch", 10, EVERYBODY),
    "quickstart-sklearn": App("examples/quickstart-sklearn", 4, "num-server-rounds=5"),
    "quickstart-xgboost": App("examples/quickstart-xgboost", 4, XGBOOST),
    "xgboost-comprehensive": App(
        "examples/xgboost-comprehensive", 3, "num-server-rounds=2 params.nthread=1", rows=500_400
    ),
    "step-by-step-pytorch": App(
        "examples/flower-simulation-step-by-step-pytorch/my-awesome-app",
        4,
        "num-server-rounds=2 fraction-fit=1.0",
    ),
    "vertical-fl": App("examples/vertical-fl", 3, "num-server-rounds=20"),
    "baseline fedprox": App(
        "baselines/fedprox",
        10,
        "algorithm.num-server-rounds=2 algorithm.fraction-fit=1.0 algorithm.min-available-clients=10 "
        "algorithm.local-epochs=2 algorithm.num-clients=10 dataset.preassigned-num-samples-per-label=2",
    ),
    "baseline fedrep": App(
        "baselines/fedrep",
        5,
        "num-server-rounds=2 fraction-fit=1.0 fraction-evaluate=1.0 num-local-epochs=2 min-fit-clients=5 "
        "min-available-clients=5 min-evaluate-clients=5",
    ),
    "baseline floco": App(
        "baselines/floco", 3, "num-server-rounds=2 fraction-fit=1.0 local-epochs=1", rows=1800
    ),
}


def environment(out: Path, extra: str) -> dict[str, str]:
    """Return the environment of both engines: the shim first on the path, one thread a process."""
    path = [str(HERE / "shim"), str(ROOT), *filter(None, [extra])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COMPARE_OUT": str(out),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    }


@contextmanager
def superlink(folder: Path, env: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Give `flwr run` a home and a port of its own; end the SuperLink that it starts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mark = f"{os.getpid()}-{port}"
    try:
        yield {**env, "FLWR_HOME": str(folder), "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port), "MARK": mark}
    finally:
        for how in (signal.SIGTERM, signal.SIGKILL):
            for pid in _marked(f"MARK={mark}"):
                os.kill(pid, how)
            time.sleep(2)


def _marked(variable: str) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def timed(command: list[str], where: Path, env: Mapping[str, str], out: Path) -> tuple[float, Any, str]:
    """Run a command; return its seconds, what the shim wrote (None if it failed), and what it printed."""
    before = set(out.glob("*.json"))
    started = time.monotonic()
    try:
        done = subprocess.run(
            command, check=False, cwd=where, env=env, capture_output=True, text=True, timeout=LIMIT
        )
        printed = done.stdout + done.stderr
    except subprocess.TimeoutExpired as error:
        printed = f"{error}"
    seconds = time.monotonic() - started
    new = set(out.glob("*.json")) - before
    if len(new) != 1:
        return seconds, None, printed
    (path,) = new
    arrays = dict(np.load(path.with_suffix(".npz"), allow_pickle=False))
    return seconds, {**json.loads(path.read_text()), "arrays": arrays}, printed


def difference(one: Any, other: Any) -> float:
    """Return the largest relative difference of two results' numbers; infinite where they are not alike."""
    if type(one) is not type(other):
        return float("inf")
    if isinstance(one, dict | list):
        keys = one if isinstance(one, dict) else range(len(one))
        if len(one) != len(other) or any(key not in other for key in keys if isinstance(one, dict)):
            return float("inf")
        return max((difference(one[key], other[key]) for key in keys), default=0.0)
    if isinstance(one, str):
        return 0.0 if one == other else float("inf")
    a, b = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    if a.shape != b.shape or np.array_equal(a, b, equal_nan=True):
        return 0.0 if a.shape == b.shape else float("inf")
    return float(np.abs(a - b).max() / max(np.abs(a).max(), np.abs(b).max()))


def compared(one: Any, other: Any) -> str:
    """Return how equal two results are, in words."""
    if one is None or other is None:
        return "failed"
    parts = ("results", "clients", "errors", "arrays")
    largest = max(difference(one[part], other[part]) for part in parts)
    equal = "bits" if largest == 0 else f"to {largest:.0e}"
    return f"{equal}, {one['errors']} errors" if one["errors"] else equal


def copy_of(app: Path, folder: Path) -> Path:
    """Return a copy of an app: `flwr run` writes to its folder."""
    place = folder / app.name
    shutil.copytree(app, place)
    return place


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("flower", type=Path)
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--extra", default="", help="a folder of packages that examples need")
    parser.add_argument(
        "--light", action="store_true", help="without SuperLink and Ray: see flower_engine.py"
    )
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--failures", action="store_true", help="print what failed runs printed")
    return parser.parse_args()


def main() -> None:
    """Print a row for each app."""
    options = arguments()
    names = options.only.split(",") if options.only else list(APPS)
    theirs = "Flower's engine" if options.light else "flwr run"
    print(
        f"| app | nodes | equal | {theirs} | fedbn-sim app | times as fast | rounds alone | times as fast |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folder, out = Path(temporary), Path(temporary) / "out"
        out.mkdir()
        env = environment(out, options.extra)
        with superlink(folder / "home", env) as flower:
            (folder / "home").mkdir()
            if not options.light:
                start = ["flwr", "list"]  # it starts the SuperLink
                subprocess.run(start, check=False, cwd=folder, env=flower, capture_output=True)
            for name in names:
                print(row(name, options, folder, out, env, flower), flush=True)


def row(
    name: str,
    options: argparse.Namespace,
    folder: Path,
    out: Path,
    env: Mapping[str, str],
    flower: Mapping[str, str],
) -> str:
    """Return an app's row of the table."""
    app = APPS[name]
    (out / "rows").write_text(str(app.rows))
    place = copy_of(options.flower / app.path, folder / name.replace(" ", "-"))
    config = ["--run-config", app.config] if app.config else []
    nodes = f"num-supernodes={app.nodes} client-resources-num-cpus=1 init-args-num-cpus={os.cpu_count()}"
    command = ["flwr", "run", str(place), "--stream", *config, "--federation-config", nodes]
    if options.light:
        command = [sys.executable, str(HERE / "flower_engine.py"), str(place), str(app.nodes), app.config]
    theirs = timed(command, folder, flower, out)
    where = ["--num-supernodes", str(app.nodes), "--backend", options.backend, "--seed", "0"]
    start = [sys.executable, "-c", "import sys; from fedbn_flower.cli import main; sys.exit(main())"]
    ours = timed(
        [*start, "app", str(place), *config, *where, "--run-dir", str(folder / f"{name}-run")],
        folder,
        env,
        out,
    )
    equal = compared(theirs[1], ours[1])
    if options.failures and equal in ("failed", "to inf"):
        print(theirs[2][-3000:], ours[2][-3000:], theirs[1], ours[1], sep="\n----\n", file=sys.stderr)
    whole = _pair(theirs[0], ours[0]) if theirs[1] and ours[1] else "| | |"
    rounds = _ratio(theirs[1]["seconds"], ours[1]["seconds"]) if theirs[1] and ours[1] else "| |"
    return f"| {name} | {app.nodes} | {equal} {whole} {rounds}"


def _pair(theirs: float, ours: float) -> str:
    return f"| {theirs:.1f} s | {ours:.1f} s | {theirs / ours:.1f} "


def _ratio(theirs: float, ours: float) -> str:
    return f"| {theirs:.2f} s, {ours:.2f} s | {theirs / ours:.1f} |"


if __name__ == "__main__":
    main()
