"""The house: what may import what, and how long a file may be."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from flwr.common.constant import FAB_INCLUDE_PATTERNS

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("strategies", "clients", "fedbn_flower")
LONGEST = 300
FOLDERS = ("tests", "benchmarks", "examples", "deploy", "experiments")

FORBIDDEN = {
    "strategies": {"torch", "clients", "fedbn_flower"},
    "clients": {"strategies", "fedbn_flower"},
    "fedbn_flower": {"run_sim", "strategies", "clients", *FOLDERS},  # fedbn_flower.strategies is always ours
}

LAYERS = (
    {"packages"},
    {"columns", "errors", "files", "own", "forms", "unions", "commands", "logs", "suggestions"},
    {"divergence", "exchange", "observer", "refusals", "system"},
    {"listing"},
    {"registry"},
    {"models"},
    {"data"},
    {"keys"},
    {"algorithms"},
    {"references", "trust"},
    {"config", "flags", "instances"},
    {"account", "answers", "assembly", "evaluation", "rule"},
    {"cohorts", "fit", "new_clients", "notices", "outputs"},
    {"rounds", "results"},
    {"client_app"},
    {"runtime"},
    {"simulation"},
    {"experiments", "search"},
    {"arguments", "looking", "reference"},
    {"jobs"},
    {"api", "cli", "server_app"},
)
"""The modules and folders of fedbn_flower, lowest first: each imports from its own layer and those below."""
LAYER = {unit: height for height, layer in enumerate(LAYERS) for unit in layer}


def files(*folders):
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_for_type_checkers(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def nodes_at_run_time(node):
    """All nodes of a syntax tree but those that only type checkers read."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not is_for_type_checkers(child):
            yield from nodes_at_run_time(child)


def imports(path, nodes=nodes_at_run_time):
    """The full names of the modules that a file imports, wherever in it."""
    package = path.relative_to(ROOT).parent.parts
    for node in nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
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
        for name in imports(path, ast.walk)
        if name.partition(".")[0] in FORBIDDEN[package]
    ]
    assert not wrong


def test_within_the_app_they_go_down():
    units = {module.split(".")[1] for module in MODULES if module.startswith("fedbn_flower.")}
    assert units == LAYER.keys()
    wrong = []
    for path in files("fedbn_flower"):
        own = module_of(path).split(".")[1:2]
        for name in imports(path):
            package, *rest = name.split(".")
            if package == "fedbn_flower" and own and rest and LAYER.get(rest[0], 0) > LAYER[own[0]]:
                wrong.append(f"{path.relative_to(ROOT)}: {name}")
    assert not wrong


def test_nothing_imports_itself_by_a_detour():
    graph = {module_of(path): MODULES.intersection(imports(path)) for path in files(*PACKAGES)}
    assert len(list(TopologicalSorter(graph).static_order())) == len(MODULES)


def test_no_file_is_longer_than_a_person_wants_to_read():
    everything = [*files(*PACKAGES, *FOLDERS), ROOT / "run_sim.py"]
    long = {str(p.relative_to(ROOT)) for p in everything if len(p.read_text().splitlines()) > LONGEST}
    assert not long


def test_what_reads_imports_sees_them():
    assert {"fedbn_flower.keys", "fedbn_flower.errors", "shlex"} <= set(
        imports(ROOT / "fedbn_flower/config.py")
    )
    assert "fedbn_flower.runtime.pool" in set(imports(ROOT / "fedbn_flower/simulation.py"))  # in a function
    assert "fedbn_flower.api" not in set(imports(ROOT / "fedbn_flower/__init__.py"))
    assert "fedbn_flower.api" in set(imports(ROOT / "fedbn_flower/__init__.py", ast.walk))


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
