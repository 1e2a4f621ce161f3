"""The house: what may import what, and how long a file may be."""

import ast
import os
import re
import runpy
import subprocess
import sys
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest
from flwr.common.constant import FAB_INCLUDE_PATTERNS

from fedbn_flower.annexes import ANNEXES

from .conftest import FIRST, LIBRARIES, GroupsAndFiles

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("strategies", "clients", "fedbn_flower")
LONGEST = 500
FOLDERS = ("tests", "benchmarks", "examples", "deploy", "experiments")

FORBIDDEN = {
    "strategies": {"torch", "clients", "fedbn_flower"},
    "clients": {"strategies", "fedbn_flower"},
    "fedbn_flower": {"run_sim", "strategies", "clients", *FOLDERS},  # fedbn_flower.strategies is always ours
}
GROUND = "fedbn_flower.core.ground"
"""What all of them may import."""

FLOORS = (
    {"core"},
    {"data", "names", "privacy", "records"},
    {"extensions", "models"},
    {"config"},
    {"job"},
    {"server", "site"},
    {"results"},
    {"runtime"},
    {"api", "cli"},
)
"""The rooms of fedbn_flower, lowest first: each imports from rooms below it. Beside them are four doors.

With `strategies` and `clients` above the ground, and `run_sim.py` on top, the house has eleven floors.
"""
FLOOR = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}
DOORS = {"client_app", "server_app", "packages", "annexes"}
MOST = 20
"""Entries of a room."""


PUBLIC = (
    "flwr.app",
    "flwr.client",
    "flwr.clientapp",
    "flwr.common",
    "flwr.serverapp",
    "flwr.serverapp.exception",
    "flwr.serverapp.strategy",
    "ray",
    "ray.exceptions",
)
"""Modules of Flower and Ray that may be imported anywhere, for the names that they list in ``__all__``."""
PRIVATE = ROOT / "fedbn_flower/core/private.py"
TOUCHED = r"_retry_invoker|\b_message_id|ConsolePopen|ConsoleHandler|TaskIdentity|\._private\b|\.__dict__\["
"""Private parts that may be reached without an import."""


def files(*folders):
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def size():
    """What counts lines; a copy of the project may lack it."""
    return runpy.run_path(str(ROOT / "scripts/size"))


@cache
def read(path):
    """A file's imports, wherever they are, but that none is in an expression; and how long it is."""
    left, found = [tree := ast.parse(path.read_text())], []
    for node in left:
        blocks = (getattr(node, name, ()) for name in ("body", "orelse", "finalbody", "handlers", "cases"))
        left += [child for block in blocks for child in block]
        found += [node] if isinstance(node, ast.Import | ast.ImportFrom) else []
    return found, size()["lines"](path, tree)[0]


@cache
def imports(path):
    """The full names of the modules that a file imports, wherever in it, also for type checkers only."""
    return tuple(_imports(path))


def _imports(path):
    package = path.relative_to(ROOT).parent.parts
    for node in read(path)[0]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            base = package[: len(package) + 1 - node.level] if node.level else ()
            name = ".".join([*base, *filter(None, [node.module])])
            modules = {f"{name}.{alias.name}" for alias in node.names} & MODULES
            yield from modules or {name}


MODULES = {module_of(path) for path in files(*PACKAGES)}


@pytest.mark.parametrize("package", PACKAGES)
def test_arrows_go_one_way(package):
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files(package)
        for name in imports(path)
        if name.partition(".")[0] in FORBIDDEN[package] and not name.startswith(f"{GROUND}.")
    ]
    assert not wrong


def test_the_ground_imports_nothing_of_ours():
    found = {name for path in files("fedbn_flower/core/ground") for name in imports(path)}
    assert {"pydantic", "flwr.app"} <= found
    assert not {name for name in found if name.partition(".")[0] in {"torch", *PACKAGES}}


def arrows():
    """Pairs of different rooms of fedbn_flower of which the first imports from the second, with the file."""
    for path in files("fedbn_flower"):
        room = module_of(path).split(".")[1:2]
        for name in imports(path):
            package, *rest = name.split(".")
            if package == "fedbn_flower" and room and rest and rest[0] in FLOOR and rest[0] != room[0]:
                yield room[0], rest[0], f"{path.relative_to(ROOT)}: {name}"


def test_a_room_imports_from_floors_below_it_only():
    rooms = {module.split(".")[1] for module in MODULES if module.startswith("fedbn_flower.")}
    assert rooms == FLOOR.keys() | DOORS | {name.partition(".")[0] for name in ANNEXES}
    assert not [where for room, other, where in arrows() if room in FLOOR and FLOOR[other] >= FLOOR[room]]


def test_nothing_imports_an_annex():
    """Not even another annex: any of them can be taken away."""
    into = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in files(*PACKAGES)
        for name in imports(path)
        for annex in ANNEXES
        if f"{name}.".startswith(f"fedbn_flower.{annex}.")
        and not module_of(path).startswith(f"fedbn_flower.{annex}")
    }
    assert not into


def test_a_test_asks_for_an_annex_before_it_imports_it():
    """Those of an annex lie in the folder of its name; all others are skipped where it is not there."""
    said = re.compile(
        rf"^\s*(?:from|import) fedbn_flower(?:\.| import )({'|'.join(ANNEXES)})\b", re.MULTILINE
    )
    unasked = [
        f"{path.relative_to(ROOT)}: {annex}"
        for path in files("tests")
        if path.name.startswith("test_")
        for text in [path.read_text()]
        for annex in said.findall(text)
        if f"tests/fedbn_flower/{annex.replace('.', '/')}/" not in str(path)
        and f'importorskip("fedbn_flower.{annex}' not in text
    ]
    assert not unasked


def test_the_two_ends_of_the_wire_know_nothing_of_each_other():
    """What runs beside a site's data is one room, which a hospital can audit without that of the server."""
    ends = ({"server", "site"}, {"server", "warm"})
    between = [where for room, other, where in arrows() if {room, other} in ends]
    assert not between


@pytest.mark.parametrize("package", PACKAGES)
def test_a_room_has_about_a_dozen_entries_at_most(package):
    for folder in {path.parent for path in files(package)} - {ROOT / "fedbn_flower"}:
        modules = [p for p in folder.glob("*.py") if p.name != "__init__.py"]
        rooms = [p.parent for p in folder.glob("*/__init__.py")]
        assert len(modules) + len(rooms) <= MOST, folder


def test_nothing_imports_itself_by_a_detour():
    graph = {module_of(path): MODULES.intersection(imports(path)) for path in files(*PACKAGES)}
    assert len(list(TopologicalSorter(graph).static_order())) == len(MODULES)


def names_imported(path):
    """(module, name) of every import from Flower and Ray in a file; the name is None where it is a module."""
    for node in read(path)[0]:
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif not node.level:
            yield from ((node.module, alias.name) for alias in node.names)


def is_public(module, name):
    if module.partition(".")[0] not in {"flwr", "ray"}:
        return True
    if module not in PUBLIC:
        return False
    listed = getattr(import_module(module), "__all__", None)
    return name is None or (listed is None and not name.startswith("_")) or name in (listed or ())


def uses_of_private_parts(path):
    """What a file imports or reaches of Flower's and Ray's private parts."""
    imported = [f"{module}: {name}" for module, name in names_imported(path) if not is_public(module, name)]
    return imported + re.findall(TOUCHED, path.read_text())


def test_private_parts_of_flower_and_ray_are_used_in_one_file():
    everything = [*files(*PACKAGES), ROOT / "run_sim.py"]
    assert [path for path in everything if uses_of_private_parts(path)] == [PRIVATE]
    found = {use.partition(":")[0] for use in uses_of_private_parts(PRIVATE)}
    assert {"flwr.supercore.run", "flwr.common.constant", "ray._private", "_retry_invoker"} <= found


@pytest.mark.parametrize(
    ("line", "public"),
    [
        ("from flwr.app import Message", True),
        ("from flwr.common import Scalar", True),
        ("import ray", True),
        ("from flwr.common import logger", False),
        ("from flwr.app import message", False),
        ("import flwr.supercore", False),
        ("from ray import _private", False),
        ("grid._retry_invoker.max_time = 1", False),
    ],
)
def test_what_looks_for_private_parts_sees_them(line, public, tmp_path):
    (tmp_path / "file.py").write_text(f"def late():\n    {line}\n")
    assert (not uses_of_private_parts(tmp_path / "file.py")) == public


def test_no_file_is_longer_than_a_person_wants_to_read():
    everything = [*files(*PACKAGES, *FOLDERS), ROOT / "run_sim.py"]
    long = {str(p.relative_to(ROOT)) for p in everything if len(p.read_text().splitlines()) > LONGEST}
    assert not long


FOUR_AND_TWO = '''"""Of four executable lines,
and two of imports."""

from a import b
import c


def f(x):
    """Say."""

    return {  # a comment
        x: 1,
    }
'''


def test_the_core_fits_in_one_head(tmp_path):
    """Whoever has something new takes something away, or makes an annex of it."""
    file = tmp_path / "some.py"
    file.write_text(FOUR_AND_TWO)
    assert size()["lines"](file) == (4, 2)
    rooms: Counter[str] = Counter()
    for path in size()["files"]():
        rooms[size()["room_of"](path)] += read(path)[1]
    assert 20_000 < sum(lines for room, lines in rooms.items() if room not in ANNEXES) <= 27_000
    assert 0 < rooms["consortium"] <= 1_600
    assert 0 < rooms["watch"] <= 900


def test_what_reads_imports_sees_them():
    read = {"fedbn_flower.config.keys", "fedbn_flower.core.errors", "typing"}
    assert read <= set(imports(ROOT / "fedbn_flower/config/making.py"))
    in_a_function = "fedbn_flower.runtime.ray.pool"
    assert in_a_function in set(imports(ROOT / "fedbn_flower/runtime/ray/background.py"))
    assert "fedbn_flower.api.simulate" in set(imports(ROOT / "fedbn_flower/__init__.py"))  # for type checkers


def test_flower_packs_every_file_that_the_app_reads():
    """None of other kinds is in what ``flwr run`` sends; only type checkers read ``py.typed``."""
    found = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    left_out = [
        path
        for path in found
        if "__pycache__" not in path.parts
        and path.name != "py.typed"
        and not any(path.match(pattern) for pattern in FAB_INCLUDE_PATTERNS)
    ]
    assert not left_out


@pytest.mark.slow
def test_every_name_that_a_run_can_choose_selects_tests(request):
    """``pytest -k NAME`` does, whatever the name: ``-k fedbn``, ``-k least-squares``."""
    from fedbn_flower.cli.listing import NAMES

    tests = [item.nodeid.lower() for item in request.session.items]
    if len(tests) < ALL:
        tests = collected()
    names = {(kind, name) for kind, found in NAMES.items() for name in found}
    assert not {(kind, name) for kind, name in names if not any(name in test for test in tests)}


ALL = 5000
"""More tests are collected where all are, slow ones too, and only there."""


def collected():
    """The ids of all tests, in a process of its own."""
    options = ["-o", "addopts=", "--collect-only", "-q", "-p", "no:cacheprovider"]
    collect = [sys.executable, "-m", "pytest", *options]
    own = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    ended = subprocess.run(collect, cwd=ROOT, env=own, capture_output=True, text=True, timeout=300)
    shown = ended.stdout.lower()
    tests = [line for line in shown.splitlines() if "::" in line]
    assert len(tests) > 1000, shown[-2000:]
    return tests


def test_a_group_of_tests_is_run_in_one_process(request):
    """What shares a SuperLink, Ray's workers or large imports, and each file's rest."""
    if not hasattr(request.config, "workerinput"):
        pytest.skip("one process runs all tests")
    scheduler = object.__new__(GroupsAndFiles)
    for item in request.session.items:
        assert scheduler._split_scope(item.nodeid) == item.group


def test_files_that_are_grouped_or_first_are_there():
    named = [*LIBRARIES, *(name for name in FIRST if name.endswith(".py"))]
    assert [name for name in named if not (ROOT / name).is_file()] == []
