"""``fedbn_flower.strategies`` and ``fedbn_flower.clients``: always ours, whatever else has the plain names.

The two are folders next to this one, for ``import strategies``. An app may have packages of these names
itself: ``import strategies`` gives what is first on the path, the names below this package always give ours.
Where the plain name is ours too, both give the same modules, those of the name that was imported first.

Two links in this folder show the names to type checkers. What Flower packs into an app has no links.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
PREFIX = f"{__package__}."
PLACES = {
    name: [(folder / name).resolve() for folder in (HERE, HERE.parent) if (folder / name).is_dir()]
    for name in ("strategies", "clients")
}
"""Where ours may be, by name; in a wheel there are two copies."""


class AliasFinder(MetaPathFinder):
    """Finds both packages below this one, and gives them under their plain names where those are ours.

    Each is one module under both names: imported twice, its classes would differ, and isinstance fail.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module of these packages; None for every other, and for what is found as usual."""
        plain = fullname.removeprefix(PREFIX)
        package, _, submodule = plain.partition(".")
        if package not in PLACES:
            return None
        long, loaded = PREFIX + package, sys.modules.get(package)
        first = loaded and loaded.__name__ == package and _is_ours(package, getattr(loaded, "__file__", None))
        if fullname != plain:  # below this package
            if first:
                return _alias_spec(plain, fullname)
            return None if submodule else spec_from_file_location(long, PLACES[package][0] / "__init__.py")
        if first:
            return None
        same = loaded is sys.modules.get(long) if submodule else self._plain_name_is_free(package)
        return _alias_spec(PREFIX + plain, fullname) if same else None

    def _plain_name_is_free(self, package: str) -> bool:
        """Whether the plain name is ours: nothing else is found under it."""
        others = (finder.find_spec(package, None) for finder in sys.meta_path if not _is_of_this_kind(finder))
        spec = next(filter(None, others), None)
        return spec is None or _is_ours(package, spec.origin)


def install() -> None:
    """Ask this finder first, and no earlier one: an app that is loaded anew brings another."""
    sys.meta_path[:] = [AliasFinder(), *(finder for finder in sys.meta_path if not _is_of_this_kind(finder))]


def _is_of_this_kind(finder: object) -> bool:
    return type(finder).__module__ == __name__


def _is_ours(package: str, file: str | None) -> bool:
    return file is not None and Path(file).resolve().parent in PLACES[package]


class _AliasLoader(Loader):
    """Gives a module under a further name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def exec_module(self, module: ModuleType) -> None:
        """Put the module of the other name into the place of this one."""
        sys.modules[module.__name__] = import_module(self.name)


def _alias_spec(name: str, fullname: str) -> ModuleSpec | None:
    spec = find_spec(name)
    return spec and ModuleSpec(
        fullname, _AliasLoader(name), is_package=spec.submodule_search_locations is not None
    )
