"""The rules alone are light."""

import subprocess
import sys
from pathlib import Path

HEAVY = {
    "torch", "torchvision", "ray", "datasets", "flwr_datasets", "matplotlib", "sklearn", "safetensors",
    "fedbn_flower", "clients",
}  # fmt: skip


def test_nothing_heavy_is_imported():
    code = "import sys, strategies; print(*{name.split('.')[0] for name in sys.modules})"
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    imported = set(result.stdout.split())
    assert {"strategies", "flwr", "numpy", "pydantic"} <= imported
    assert not imported & HEAVY
