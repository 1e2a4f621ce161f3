"""Every notebook in examples/ runs in a kernel of this Python, and shows what it says."""

import json
import re

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell
from safetensors import safe_open

from fedbn_flower import simulate
from fedbn_flower.names import APP
from fedbn_flower.results.run_reader import Run

from ..integration.processes import STUBS

pytest.importorskip("fedbn_flower.study")
pytestmark = pytest.mark.slow

LESS = """
from functools import partial
from fedbn_flower.study import intervals
from tests.pictures import draw_none

draw_none()
intervals.intervals_of_cases = partial(intervals.intervals_of_cases, draws=20)
"""
NOTEBOOKS = sorted((APP / "examples").glob("*.ipynb"))


@pytest.fixture
def executed(tmp_path, cache_dir, monkeypatch):
    """Executes a notebook, and then an expression in it; the outputs, and what the expression gave.

    Its runs draw no pictures for their folders, and their intervals are of few draws.
    """
    monkeypatch.setenv("PYTHONPATH", f"{STUBS}:{APP}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_dir))

    def execute(name, expression):
        notebook = nbformat.read(APP / "examples" / name, as_version=4)
        notebook.cells.insert(0, new_code_cell(LESS))
        notebook.cells.append(new_code_cell(f"import json\nprint(json.dumps({expression}))"))
        place = {"metadata": {"path": str(tmp_path)}}
        how = {"coalesce_streams": True, "timeout": 300, "kernel_name": "python3"}  # a line may come in parts
        NotebookClient(notebook, resources=place, **how).execute()
        answer = json.loads(notebook.cells.pop().outputs[0].text)
        return [output for cell in notebook.cells for output in cell.get("outputs", [])], answer

    return execute


def bars(outputs):
    """The text of every progress bar as it was at the end."""
    texts = [output.data["text/plain"] for output in outputs if output.output_type == "display_data"]
    return [text for text in texts if "seed0" in text]


def pictures(outputs):
    return sum("image/png" in output.get("data", {}) for output in outputs)


def stored(name):
    notebook = nbformat.read(APP / "examples" / name, as_version=4)
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def texts(outputs):
    """What cells print or give, without the numbers in it; and the numbers. Progress bars tell times."""
    found = [
        output.get("text") or output.data["text/plain"]
        for output in outputs
        if output.output_type in ("stream", "execute_result")
    ]
    return [re.sub(r"[\d.]+|\s+", " ", text) for text in found], [
        float(number) for text in found for number in re.findall(r"\d+(?:\.\d+)?", text)
    ]


def assert_as_stored(outputs, name, **tolerance):
    """On another machine roundings differ, and with them which images are right."""
    (words, numbers), (told, expected) = texts(outputs), texts(stored(name))
    assert words == told
    assert numbers == pytest.approx(expected, **tolerance)
    assert pictures(outputs) == pictures(stored(name))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_what_a_reader_sees_has_all_outputs_and_no_paths(path):
    notebook = nbformat.read(path, as_version=4)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert pictures(stored(path.name)) > 0
    assert "/home/" not in json.dumps(notebook)
    assert "/tmp/" not in json.dumps(notebook)


def test_two_silos(executed, tmp_path, cache_dir, pictures_not_drawn, few_draws):
    outputs, means = executed(
        "two_silos.ipynb", "{' '.join(names): values.to_dict() for names, values in table.iterrows()}"
    )
    assert_as_stored(outputs, "two_silos.ipynb", abs=0.5)
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert pictures(outputs) == 3
    assert len(list((tmp_path / "runs").iterdir())) == 18
    told = "".join(output.text for output in outputs if output.output_type == "stream")
    assert told.endswith("weights the same: True\nBatchNorm the same: False\n")

    deviation = max(of["std"] for of in means.values())
    for client in ("shared", "silobn", "fedbn"):
        rules = [means[f"{rule} {client}"]["mean"] for rule in ("fedavg", "fedyogi")]
        assert rules[1] > rules[0] + 3 * deviation
    for rule in ("fedavg", "fedyogi"):
        policies = [means[f"{rule} {client}"]["mean"] for client in ("shared", "silobn", "fedbn")]
        assert policies == sorted(policies)
        assert policies[2] < policies[0] + 2 * deviation
    runs = [Run.read(folder) for folder in (tmp_path / "runs").iterdir()]
    chosen = {"strategy": "fedyogi", "client": "fedbn"}
    found = {run.config["seed"]: run for run in runs if chosen.items() <= run.config.items()}
    accuracies = [found[seed].summary.client_mean["accuracy"] for seed in range(3)]
    assert means["fedyogi fedbn"]["mean"] == pytest.approx(np.mean(accuracies))
    assert means["fedyogi fedbn"]["std"] == pytest.approx(np.std(accuracies, ddof=1))
    again = simulate(**chosen, dataset="digits", seed=2, client_lr=0.002, eval_data="local", progress=False,
                     cache_dir=cache_dir, run_dir=tmp_path / "again", backend="inline")  # fmt: skip
    assert again.summary["client-mean"] == found[2].summary.client_mean


def test_own_everything(executed):
    """On Ray, the default: its workers know the class of the cell that ran last."""
    outputs, runs = executed(
        "own_everything.ipynb",
        "[(str(r.folder.resolve()), r.summary['client-mean']['accuracy']) for r in (mine, shared, simulate("
        "strategy=HeavyBall(beta=0.25), client=OwnNormAndHead, backend='inline', progress=False, **common))]",
    )
    assert_as_stored(outputs, "own_everything.ipynb", rel=0.05)
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
