"""Every name that a run can be given, read from the source: an import of it all takes seconds of PyTorch."""

import ast
from collections.abc import Iterator
from pathlib import Path

from ..core.syntax import DATASET, PARTITION, UNION

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "strategy": "strategies",
    "client": "clients",
    "objective": "clients/objectives",
    "loss": "clients/losses",
    "problem": "clients/problems",
    "metrics": "clients/problems/metrics",
    "model": "fedbn_flower/models",
    "selection": "strategies/selections",
    "compress": "strategies/messages/codecs",
}
"""Where the built-in ones of a kind are named: a package whose ``_PLACES`` says ``module:Class``, by name."""


def built_in_names(kind: str) -> Iterator[tuple[str, str]]:
    """Every built-in name of a kind, with the first line of its docstring."""
    folder = ROOT / PACKAGES[kind]
    places = next(
        ast.literal_eval(node.value)
        for node in _statements(folder / "__init__.py")
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_PLACES"
    )
    for name, place in places.items():
        module, _, attribute = place.partition(":")
        yield name, _first_line(folder / f"{module.replace('.', '/')}.py", attribute)


def lines() -> Iterator[str]:
    """Each name with what it is, as ``--list`` shows them."""
    for kind in PACKAGES:
        names = dict(built_in_names(kind))
        width = max(map(len, names))
        for name, about in names.items():
            yield f"{kind:<10} {name:<{width}} {about}"
    yield f"client     {UNION}"
    yield f"dataset    {DATASET}"
    yield f"partition  {PARTITION}"


def _first_line(path: Path, name: str) -> str:
    """The first line of the docstring of a class or a function in a file."""
    defined = next(
        node
        for node in _statements(path)
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name
    )
    return (ast.get_docstring(defined) or "").partition("\n")[0].replace("``", "")


def _statements(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text(encoding="utf-8")).body
