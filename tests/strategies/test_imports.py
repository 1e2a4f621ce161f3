"""The rules alone are light."""

import subprocess
import sys
from pathlib import Path

HEAVY = {
    "torch", "torchvision", "ray", "datasets", "flwr_datasets", "matplotlib", "sklearn", "safetensors",
    "clients",
}  # fmt: skip
OF_THE_APP = {"packages", "core.version"}
"""Of fedbn_flower, what its name alone imports; beside the ground."""


def test_nothing_heavy_is_imported():
    code = "import sys, strategies; print(*sys.modules)"
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    modules = set(result.stdout.split())
    imported = {name.split(".")[0] for name in modules}
    assert {"strategies", "flwr", "numpy", "pydantic"} <= imported
    assert not imported & HEAVY
    of_the_app = {name.removeprefix("fedbn_flower.") for name in modules if name.startswith("fedbn_flower.")}
    assert {name for name in of_the_app if not name.startswith("core.ground")} == OF_THE_APP | {"core"}
