"""Adding an algorithm, a problem or a model takes a file and an entry; everything else follows from them."""

import difflib
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from fedbn_flower.cli.listing import NAMES, WITH_PURPOSE
from fedbn_flower.core.methods import PURPOSES, purposes_of
from tests.test_house import ROOT

COPIED = ("strategies", "clients", "fedbn_flower")
FILES = ("pyproject.toml", "run_sim.py", "docs/reference.md", "docs/algorithms.md", "docs/how-to/splits.md")
GENERATED = {"pyproject.toml", "docs/reference.md", "docs/algorithms.md"}
COMMANDS = """
import contextlib, io, json, runpy, sys
from fedbn_flower import cli

def output(do, *arguments):
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        do(*arguments)
    return text.getvalue()

listed = output(cli.main, ["--list", "all"])
output(lambda: runpy.run_module("fedbn_flower.reference", run_name="__main__"))
helped = output(cli.main, ["--strategy", "half-step", "--help", "all"])
assert cli.main(sys.argv[1:]) == 0
print(json.dumps([listed, helped]))
"""
"""In one process: what ``--list`` shows; the reference is written; what ``--help`` shows; a run."""

NEW = {
    "strategy": ("half-step", "half_step:HalfStep", '''
from ..aggregation.fold import Round
from ..aggregation.rule_state import RuleState
from ..aggregation.vectors import Vector
from ..base import PseudoGradientStrategy
from fedbn_flower.core.ground.settings import setting


class HalfStep(PseudoGradientStrategy):
    """``x += share D`` for a rule that is new."""

    helps = ("few-rounds", "label-skew")
    paper = "reddi2021adaptive"
    requires = {"objective": {"half-pull"}}

    share: float = setting(0.5, gt=0, alias="step-share", description="share of D that is stepped")

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        return self.share * delta
'''),
    "client": ("home-bias", "home_bias:HomeBiasClient", '''
from torch import nn

from ..base import FedAvgClient


class HomeBiasClient(FedAvgClient):
    """Keeps every bias at home, for a client that is new."""

    helps = ("personal-models",)

    @staticmethod
    def local_entries(model: nn.Module) -> frozenset[str]:
        return frozenset(name for name in model.state_dict() if name.endswith("bias"))
'''),
    "objective": ("half-pull", "half_pull:HalfPull", '''
from fedbn_flower.core.ground.settings import setting
from .base import Objective


class HalfPull(Objective):
    """f with weights pulled to zero, for an objective that is new."""

    helps = ("label-skew",)
    to_zero: float = setting(0.001, ge=0, description="how strongly weights are pulled")

    def correct_gradients(self) -> None:
        for _, w, gradient in self.gradients():
            gradient.add_(w, alpha=self.to_zero)
'''),
    "loss": ("doubled", "doubled:Doubled", '''
class Doubled(Loss):
    """Twice the usual loss, for a loss that is new."""

    helps = ("rare-classes",)

    def __call__(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        return 2 * super().__call__(output, targets, reduction)
'''),
    "problem": ("ranking", "ranking:Ranking", '''
from .classification import Classification


class Ranking(Classification):
    """Classes in an order, for a problem that is new."""
'''),
    "metrics": ("misses", "misses:Misses", '''
import numpy as np
from numpy.typing import NDArray

from .confusion import OfConfusion


class Misses(OfConfusion):
    """Share of examples of other classes than the predicted one, for a metric that is new."""

    higher_is_better = False

    def values(self, total: NDArray) -> NDArray[np.float64]:
        return 1 - np.diagonal(total).sum(keepdims=True) / total.sum()
'''),
    "norm": ("root", "root:Root", '''
class Root(Norm):
    """RMSNorm over the channels, for a norm that is new."""

    helps = ("feature-shift",)
    paper = "ba2016layer"

    def instead(self, layer: nn.BatchNorm1d) -> nn.Module:
        return nn.RMSNorm(layer.num_features)
'''),
    "selection": ("first-ones", "first_ones:FirstOnes", '''
class FirstOnes(Selection):
    """Those of the least partitions, for a selection that is new."""

    helps = ("fairness",)

    def choose(self, candidates: Candidates, count: int, rng: np.random.Generator) -> Positions:
        return np.arange(count)
'''),
    "compress": ("half", "half:Half", '''
class Half(Codec):
    """Every value in half precision, for a codec that is new."""

    paper = "alistarh2017qsgd"

    def layout(self, size: int) -> Layout:
        return {"values": ((size,), "float16")}

    def encode(self, vector: NDArray[np.float32], rng: np.random.Generator) -> dict[str, NDArray]:
        return {"values": vector.astype(np.float16)}

    def decode(self, codes: Codes, size: int) -> NDArray[np.float32]:
        return codes["values"].astype(np.float32)
'''),
    "extension": ("cosine", "cosine:Cosine", '''
from collections.abc import Mapping

import numpy as np

from fedbn_flower.strategies.messages.npy import viewed

from ..records.events import RoundResult, RunInfo
from .base import Extension


class Cosine(Extension):
    """Adds the cosine of successive pseudo-gradients, for an extension that is new."""

    def __init__(self, run: RunInfo) -> None:
        super().__init__(run)
        self.cosine, self.models = 0.5, list[np.ndarray]()

    def after_round(self, result: RoundResult) -> None:
        model = np.concatenate([viewed(array).ravel() for array in result.arrays.values()])
        self.models = [*self.models[-2:], model.astype(np.float64)]
        if len(self.models) == 3:
            first, second = np.diff(self.models, axis=0)
            self.cosine = float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))

    def columns(self) -> Mapping[str, float]:
        return {"cosine": self.cosine}

    def summary(self) -> Mapping[str, float]:
        return {"last-cosine": self.cosine}
'''),
    "model": ("narrow", "narrow:narrow", '''
from torch import nn

from ..core.input_spec import InputSpec
from ..core.methods import paper


@paper("he2016resnet")
def narrow(spec: InputSpec) -> nn.Module:
    """Three units between two layers, for a model that is new."""
    return nn.Sequential(nn.Flatten(), nn.Linear(spec.size, 3), nn.ReLU(), nn.Linear(3, spec.outputs))
'''),
}  # fmt: skip
"""By kind: a name, where it is in the package that names it, and the text of its file, or of its class
where all of the kind are in one file."""


def stated_places():
    """By kind, where CONTRIBUTING says that a new one's class and its entry go."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^ +\| (\w+) \| `(.*)` \| `(.*)` \|$", text, re.MULTILINE)
    return {kind: (folder, registry) for kind, folder, registry in rows}


def texts(folder):
    """Every text file of a folder by its path in it."""
    paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_text() for path in paths}


def changed_lines(before, after):
    """The lines that a file lost and those that it got."""
    changes = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]
    return [line for line in changes if line[0] == "-"], [line for line in changes if line[0] == "+"]


def add(project, kind):
    """Write a new one's file and its import, or its class, and its entry at the end of the dictionary."""
    name, place, text = NEW[kind]
    home, registry = stated_places()[kind]
    module, _, attribute = place.partition(":")
    path = project / registry
    if home == registry:
        above = text
    else:
        (project / home / f"{module}.py").write_text(f'"""New."""\n{text}')
        inside = (project / home / module).relative_to(path.parent).as_posix().replace("/", ".")
        above = f"from .{inside} import {attribute}\n"
    table = re.compile(r"\n(?=[A-Z]+: dict.* = \{\n)(.*?)(?=^\})", re.DOTALL | re.MULTILINE)
    entry = f'    "{name}": {attribute},\n'
    path.write_text(table.sub(lambda found: f"{above}\n{found[1]}{entry}", path.read_text()))


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project's packages, with one of each kind added; as it was before and then."""
    folder = tmp_path_factory.mktemp("project")
    for name in COPIED:
        writing = shutil.ignore_patterns("*.pyc.*")  # but what is compiled of it is copied, too
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=writing)
    (folder / "docs/how-to").mkdir(parents=True)
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    before = texts(folder)
    for kind in NEW:
        add(folder, kind)
    return folder, before, texts(folder)


@pytest.fixture(scope="module")
def done(project, tmp_path_factory, cache_dir):
    """What ``--list`` and ``--help`` show in the copy of the project, and the folder of a run of all."""
    chosen = [word for kind in NEW for word in (f"--{kind}", NEW[kind][0])]
    run = tmp_path_factory.mktemp("runs") / "run"
    chosen += ["--step-share", 0.25, "--to-zero", 0.01, "--cache-dir", cache_dir, "--run-dir", run]
    chosen += ["--backend", "inline", "--rounds", 1]
    result = subprocess.run(
        [sys.executable, "-c", COMMANDS, *map(str, chosen)],
        cwd=project[0], env=os.environ | {"PYTHONPATH": str(project[0])}, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return *json.loads(result.stdout.splitlines()[-1]), run


def test_adding_one_is_a_file_or_a_class_and_an_entry(project):
    _, before, after = project
    places = stated_places()
    assert places.keys() == NEW.keys()
    assert after.keys() - before.keys() == {
        f"{places[kind][0]}{place.partition(':')[0]}.py"
        for kind, (_, place, _) in NEW.items()
        if places[kind][0] != places[kind][1]
    }
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {registry for _, registry in places.values()}
    for kind, (home, registry) in places.items():
        lost, got = changed_lines(before[registry], after[registry])
        added = len(NEW[kind][2].splitlines()) if home == registry else 1  # the class, or its import
        assert (len(lost), len(got)) == (0, added + 1), registry


def test_each_says_what_it_is_for():
    """CONTRIBUTING has the line that a class needs."""
    wrong = [
        f"{kind} {name}: its class {described.__name__} has helps = {vars(described).get('helps')!r}, "
        f"where one or more of {(*PURPOSES,)} are needed, in a tuple"
        for kind in WITH_PURPOSE
        for name, described in NAMES[kind].items()
        if not isinstance(vars(described).get("helps"), tuple)
        or not purposes_of(described)
        or {*purposes_of(described)} - {*PURPOSES}
    ]
    assert not wrong, "\n".join(wrong)
    assert {kind for kind, (_, _, text) in NEW.items() if "helps = " in text} == NEW.keys() & {*WITH_PURPOSE}


@pytest.mark.slow  # seconds in a process of their own, as the next two
def test_the_list_shows_each_with_its_description(done):
    listed = {tuple(line.split(maxsplit=2)) for line in done[0].splitlines()}
    for kind, (name, _, text) in NEW.items():
        words = first_line(text).replace("``", "").removesuffix(".")
        assert any(row[:2] == (kind, name) and row[2].startswith(words) for row in listed)
    assert (
        "narrow            Three units between two layers, for a model that is new (He et al. 2016)."
        in done[0]
    )


@pytest.mark.slow
def test_docs_and_help_follow(project, done):
    folder, _, added = project
    after = texts(folder)
    assert {name for name in after if after[name] != added.get(name)} == GENERATED
    for name in GENERATED:
        lost, got = changed_lines(added[name], after[name])
        assert got
        assert not lost
    for kind, (name, _, text) in NEW.items():
        words = first_line(text).replace("``", "`")
        assert f"## {kind.capitalize()} `{name}`\n\n{words}" in after["docs/reference.md"]
        assert f"| `{name}` | {words} |" in after["docs/algorithms.md"]
        if helps := re.search(r"helps = (.*)", text):
            purposes = ", ".join(re.findall(r"[a-z-]+", helps[1]))
            assert f"| {kind} | `{name}` | {purposes} | {words} |" in after["docs/algorithms.md"]
    paper = "[Reddi et al. 2021](https://arxiv.org/abs/2003.00295)"
    assert f"| `step-share` 0.5 | `objective` half-pull | {paper} |" in after["docs/algorithms.md"]
    assert 'step-share = "auto"\n' in after["pyproject.toml"]
    assert 'to-zero = "auto"\n' in after["pyproject.toml"]
    assert "strategy half-step:\n  --step-share VALUE" in done[1]


@pytest.mark.slow
def test_a_run_of_all_new_ones_works_and_cites_their_papers(done):
    run = done[2]
    saved = json.loads((run / "config.json").read_text())
    assert saved["problem"] == "ranking"
    assert (saved["step-share"], saved["to-zero"]) == (0.25, 0.01)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["pooled"]["misses"] == pytest.approx(1 - summary["pooled"]["accuracy"])
    assert summary["extensions"] == {"cosine": {"last-cosine": 0.5}}
    assert (run / "metrics.csv").read_text().splitlines()[0].split(",")[-1] == "cosine"
    page = (run / "report.html").read_text()
    assert "<dt>cosine, last-cosine</dt><dd>0.5</dd>" in page
    cited = re.findall(r"^(?:.*>)?@\w+\{(.*),$", page, re.MULTILINE)
    assert cited == [
        "beutel2020flower",
        "reddi2021adaptive",
        "he2016resnet",
        "alistarh2017qsgd",
        "ba2016layer",
    ]


PAUSE = '''
"""New."""

from collections.abc import Iterator, Mapping
from typing import Any


from ..core.errors import Conflict
from ..core.ground.settings import KeyGroup, setting
from .base import ServerHook


class PauseKeys(KeyGroup):
    """System heterogeneity"""

    after = "dropout"
    pause: int = setting(0, ge=0, description="rounds for which a client rests")


class Pause(ServerHook):
    """Lets clients rest, for an extension with a key that is new."""

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        if config["pause"] >= config["rounds"]:
            yield Conflict("pause", config["pause"], "less than rounds")
'''
ASKED = """
import sys
from fedbn_flower.config.keys import RUN_KEYS
from fedbn_flower.config.making import run_config
from fedbn_flower.config.run_config import RunConfig
from fedbn_flower.core.errors import UserError
names = [*RUN_KEYS]
print(names[names.index("dropout") + 1], run_config({"pause": 9}).pause)
try:
    run_config({"pause": 10})
except UserError as error:
    print(error)
"""


@pytest.mark.slow
def test_an_extension_with_keys_is_a_file_its_import_and_two_lines(tmp_path):
    for name in COPIED:
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True)
    rooms = tmp_path / "fedbn_flower/extensions"
    (rooms / "pause.py").write_text(PAUSE)
    text = (rooms / "__init__.py").read_text()
    text = text.replace("from .privacy", "from .pause import Pause, PauseKeys\nfrom .privacy")
    text = text.replace("    Patience,\n", "    Patience,\n    Pause,\n")
    text = text.replace("    PrivacyKeys,\n", "    PrivacyKeys,\n    PauseKeys,\n")
    lost, got = changed_lines((rooms / "__init__.py").read_text(), text)
    assert (len(lost), len(got)) == (0, 3)
    (rooms / "__init__.py").write_text(text)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", ASKED]
    found = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert found.stdout.splitlines() == ["pause 9", "pause: 10 is not allowed; expected less than rounds"], (
        found.stderr
    )


def first_line(text):
    """The first line of the only indented docstring of a file's text."""
    return re.search(r'^    """(.*?)(?:""")?$', text, re.MULTILINE)[1]
