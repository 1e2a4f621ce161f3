"""Every notebook in examples/ runs in a kernel of this Python, and shows what it says."""

import json

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell
from safetensors import safe_open

from fedbn_flower import simulate
from fedbn_flower.registry import APP

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((APP / "examples").glob("*.ipynb"))


@pytest.fixture
def executed(tmp_path, cache_dir, monkeypatch):
    """Executes a notebook, and then an expression in it; the outputs, and what the expression gave."""
    monkeypatch.setenv("PYTHONPATH", str(APP))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_dir))

    def execute(name, expression):
        notebook = nbformat.read(APP / "examples" / name, as_version=4)
        notebook.cells.append(new_code_cell(f"import json\nprint(json.dumps({expression}))"))
        place = {"metadata": {"path": str(tmp_path)}}
        NotebookClient(notebook, timeout=300, kernel_name="python3", resources=place).execute()
        *outputs, answer = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        return outputs, json.loads(answer.text)

    return execute


def bars(outputs):
    """The text of every progress bar as it was at the end."""
    texts = [output.data["text/plain"] for output in outputs if output.output_type == "display_data"]
    return [text for text in texts if "seed0" in text]


def pictures(outputs):
    return sum("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_no_outputs_are_stored(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert cells
    assert not any(cell.outputs or cell.execution_count for cell in cells)


def test_two_silos(executed, tmp_path, cache_dir):
    outputs, accuracy = executed(
        "two_silos.ipynb",
        "{f'{row.strategy} {row.client}': [row['silo 0'], row['silo 1']] for _, row in table.iterrows()}",
    )
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert ["10/10" in bar for bar in bars(outputs)] == [True] * 6
    assert pictures(outputs) == 3
    assert len(list((tmp_path / "runs").iterdir())) == len(accuracy) == 6
    told = "".join(output.text for output in outputs if output.output_type == "stream")
    assert told == "weights the same: True\nBatchNorm the same: False\n"

    means = {names: sum(silos) / 2 for names, silos in accuracy.items()}
    for rule in ("fedavg", "fedyogi"):
        assert means[f"{rule} fedavg"] < means[f"{rule} silobn"] < means[f"{rule} fedbn"]
    assert means["fedyogi fedavg"] > means["fedavg fedavg"] + 0.05
    assert means["fedyogi fedbn"] > means["fedavg fedbn"] + 0.05
    again = simulate(strategy="fedyogi", client="fedbn", client_lr=0.002, eval_data="local", progress=False,
                     cache_dir=cache_dir, run_dir=tmp_path / "again", backend="inline")  # fmt: skip
    assert accuracy["fedyogi fedbn"] == [of["accuracy"] for of in again.summary["clients"].values()]


def test_own_everything(executed):
    """On Ray, the default: its workers know the class of the cell that ran last."""
    outputs, runs = executed(
        "own_everything.ipynb",
        "[(str(r.folder.resolve()), r.summary['client-mean']['accuracy']) for r in (mine, shared, simulate("
        "strategy=HeavyBall(beta=0.25), client=OwnNormAndHead, backend='inline', progress=False, **common))]",
    )
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert ["5/5" in bar for bar in bars(outputs)] == [True] * 2
    assert pictures(outputs) == 1
    mine, shared, inline = (f"{folder}/model.safetensors" for folder, _ in runs)
    with safe_open(mine, "np") as kept, safe_open(shared, "np") as all_of_it:
        assert set(kept.keys()) == {"1.weight", "1.bias"}
        assert len(all_of_it.keys()) == 9
    with open(shared, "rb") as on_ray, open(inline, "rb") as in_the_kernel:
        assert on_ray.read() == in_the_kernel.read()
    (_, own), (_, common), _ = runs
    assert own > 0.9 > 0.6 > common
