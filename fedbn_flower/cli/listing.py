"""Every name that can be asked for, read from the source: an import of it all takes seconds of PyTorch."""

import ast
from collections.abc import Iterator
from pathlib import Path

from ..core.syntax import DATASET, PARTITION, UNION

ROOT = Path(__file__).resolve().parents[2]
TABLES = {
    "strategy": ("strategies", "STRATEGIES"),
    "client": ("clients", "CLIENTS"),
    "objective": ("clients/objectives", "OBJECTIVES"),
    "loss": ("clients/losses", "LOSSES"),
    "model": ("fedbn_flower/models", "MODELS"),
}
"""Where the built-in ones of a kind are imported and named: a package, and a dictionary in it."""


def built_in_names(kind: str) -> Iterator[tuple[str, str]]:
    """Every built-in name of a kind, with the first line of its docstring."""
    package, table = TABLES[kind]
    folder = ROOT / package
    statements = ast.parse((folder / "__init__.py").read_text(encoding="utf-8")).body
    imports = [node for node in statements if isinstance(node, ast.ImportFrom)]
    places = {alias.name: node.module for node in imports for alias in node.names}
    entries = _value(statements, table)
    assert isinstance(entries, ast.Dict)
    for key, value in zip(entries.keys, entries.values, strict=True):
        assert isinstance(key, ast.Constant)
        assert isinstance(value, ast.Name)
        docstring = (
            ast.get_docstring(_definition(folder / f"{str(places[value.id]).replace('.', '/')}.py", value.id))
            or ""
        )
        yield str(key.value), docstring.partition("\n")[0].replace("``", "")


def _definition(path: Path, name: str) -> ast.ClassDef | ast.FunctionDef:
    statements = ast.parse(path.read_text(encoding="utf-8")).body
    return next(
        node for node in statements if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name
    )


def _value(statements: list[ast.stmt], name: str) -> ast.expr:
    """What the annotated name is set to."""
    return next(
        node.value
        for node in statements
        if isinstance(node, ast.AnnAssign) and node.value and ast.unparse(node.target) == name
    )


def lines() -> Iterator[str]:
    """Each name with what it is, as ``--list`` shows them."""
    for kind in TABLES:
        for name, about in built_in_names(kind):
            yield f"{kind:<10} {name:<12} {about}"
    yield f"client     {UNION}"
    yield f"dataset    {DATASET}"
    yield f"partition  {PARTITION}"
