"""A registry: what a key may name.

A built-in thing, ``FILE.py:NAME``, ``package.module:NAME``, or an object of this session; several clients
joined by ``+``.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from fedbn_flower.clients import CLIENTS, LOSSES, OBJECTIVES
from fedbn_flower.strategies import STRATEGIES

from ..core.errors import UserError, not_allowed, unknown_name
from ..core.named_call import is_of_library
from ..core.session_objects import MARK, is_session_name, session_objects
from .client_unions import JOIN, parts
from .user_code import LoadError, code_file, module_named

ALGORITHMS: Mapping[str, Mapping[str, Any]] = {
    "strategy": STRATEGIES,
    "client": CLIENTS,
    "objective": OBJECTIVES,
    "loss": LOSSES,
}
"""The built-in algorithms by key: one of another key is told from a name that there is not."""
FORMS = "FILE.py:NAME or package.module:NAME"

T = TypeVar("T")


@dataclass(frozen=True)
class Registry(Generic[T]):
    """What a key of the run configuration may name.

    Parameters
    ----------
    key : str
        The key.
    names : Mapping[str, T]
        The built-in ones.
    base : type, optional
        The class that others must extend; without it anything that can be called will do.
    joined : Callable, optional
        Makes one of several by name, and of the name that joins theirs.
    argument : str
        What a function is called with.
    forms : str
        Which names are allowed beside the built-in ones.
    former : Mapping[str, str]
        Today's name by each former one.
    """

    key: str
    names: Mapping[str, T]
    base: type | None = None
    joined: Callable[[Mapping[str, T], str], T] | None = None
    argument: str = "the data's shape"
    forms: str = FORMS
    former: Mapping[str, str] = field(default_factory=dict)

    def find(self, name: str) -> T:
        """The class or function of that name; a file is loaded once per process.

        Raises
        ------
        UserError
            When there is none, it is something else, or its file cannot be loaded.
        """
        name = self.former.get(name, name)
        if name in self.names:
            return self.names[name]
        if is_session_name(name):
            return self._own(name)
        if self.joined and len(several := parts(name)) > 1:
            return self.joined({one: self.find(one) for one in several}, name)
        place, colon, attribute = name.rpartition(":")
        if not colon:
            raise unknown_name(self.key, name, self.names, self.forms, self._of_another_key(name))
        try:
            module = module_named(place)
        except FileNotFoundError as error:
            raise not_allowed(self.key, name, f"a file: there is no {error}") from None
        except LoadError as error:
            raise UserError(f"{self.key}: {name!r} cannot be loaded: {error}") from None
        if not hasattr(module, attribute):
            here = [word for word, value in vars(module).items() if self._is_defined_in(value, module)]
            raise unknown_name(self.key, attribute, here, "" if here else f"{self._wanted} in {place}")
        found = getattr(module, attribute)
        if not self._fits(found):
            raise not_allowed(self.key, name, self._wanted)
        return found  # type: ignore[no-any-return]

    def is_code(self, text: str) -> bool:
        """Whether a value is code: ``FILE.py:NAME`` or ``package.module:NAME``, not ``NAME:ARGUMENT``."""
        known, defined = text.partition(":")[0], text.rpartition(":")[2]
        return ":" in text and known not in self.names and defined.isidentifier()

    def check(self, value: object) -> None:
        """Refuse an object that the key cannot mean.

        Raises
        ------
        UserError
            For one that does not extend `base`, or cannot be called.
        """
        if not self._fits(value):
            raise UserError(f"{self.key}: {self._described(value)} is not allowed; expected {self._wanted}")

    def _own(self, name: str) -> T:
        objects = session_objects()
        if name not in objects:
            raise UserError(
                f"{self.key}: {name!r} was an object of another run's process; it is to be given again, "
                f"from Python: {self.key}={short(name)}"
            )
        self.check(objects[name])
        return objects[name]  # type: ignore[return-value]

    def _of_another_key(self, name: str) -> str:
        """Which key has this name, if it is none of this one's: FedProx for one is an objective here."""
        name = name.lower()
        found = [key for key, names in ALGORITHMS.items() if name in names]
        return f"it is {found[0]} {name!r}" if found and name not in self.names else ""

    @staticmethod
    def _described(value: object) -> str:
        if isinstance(value, type):
            return f"the class {value.__name__}"
        return f"an object of type {type(value).__name__}"

    @property
    def _wanted(self) -> str:
        return f"a subclass of {self.base.__name__}" if self.base else f"a function of {self.argument}"

    def _fits(self, value: object) -> bool:
        if self.base is None:
            return callable(value)
        return isinstance(value, type) and issubclass(value, self.base)

    def _is_defined_in(self, value: object, module: ModuleType) -> bool:
        return self._fits(value) and getattr(value, "__module__", "").startswith(module.__name__)


def absolute(name: str, known: Container[str] = CLIENTS) -> str:
    """The same algorithm for a process in another folder: a file's path in full; ``known`` ones have none."""
    if len(several := parts(name, known)) > 1:
        return JOIN.join(map(absolute, several))
    place, _, attribute = name.rpartition(":")
    path = code_file(place) if place.endswith(".py") else None
    return f"{path}:{attribute}" if path else name


def short(name: str) -> str:
    """The name for tables and folders: of a file or a module ``stem.NAME``."""
    place, colon, attribute = name.rpartition(":")
    if is_of_library(name):
        return name
    if is_session_name(name):
        return name.rpartition(MARK)[0]
    if len(several := parts(name)) > 1:
        return JOIN.join(map(short, several))
    stem = Path(place).stem if place.endswith(".py") else place.rpartition(".")[2]
    return f"{stem}.{attribute}" if colon else name
