"""Names of other libraries with arguments: ``LIBRARY:NAME:ARGUMENT=VALUE,...``."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any, NoReturn

from .errors import UserError, not_allowed, unknown_name
from .ground.settings import finite_number

LIBRARIES = ("torchvision", "timm", "monai")
"""Those of networks."""
OF_LIBRARY = "LIBRARY:NAME or LIBRARY:NAME:ARGUMENT=VALUE,... of torchvision, timm or monai"
INSTALL = "pip install 'fedbn-flower[networks]'"
MOST_SHOWN = 8
WORDS: Mapping[str, object] = {"true": True, "false": False, "none": None}


@dataclass(frozen=True)
class NamedCall:
    """What a key's value names.

    Parameters
    ----------
    key, text : str
        The key and its value, for messages.
    library, name : str
        Whose it is, and what it is called there.
    arguments : Mapping
        Its arguments, see `value_of`.
    """

    key: str
    text: str
    library: str
    name: str
    arguments: Mapping[str, Any]

    def refuse(self, error: Exception) -> NoReturn:
        """Raise the error for arguments that a library refused."""
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise not_allowed(self.key, self.text, f"what {self.library}'s {self.name} takes: {why}") from error

    def unknown(self, names: Iterable[str]) -> UserError:
        """Return the error for a name that the library does not have; the most similar ones are shown."""
        similar = get_close_matches(self.name, list(names), MOST_SHOWN)
        return unknown_name(self.key, self.name, similar, f"another one of {self.library}")


def is_named_call(text: str, libraries: Collection[str]) -> bool:
    """Return whether a value begins with the name of one of the libraries and a colon."""
    return text.partition(":")[0] in libraries and ":" in text


def is_of_library(model: str) -> bool:
    """Return whether a model's name is of one of the libraries."""
    return is_named_call(model, LIBRARIES)


def parse_call(key: str, text: str, form: str) -> NamedCall:
    """Parse such a value; the library is not imported yet.

    Raises
    ------
    UserError
        For another form, which the message says as ``form``; for a library that is not installed.
    """
    library, _, rest = text.partition(":")
    name, _, words = rest.partition(":")
    if not name.replace(".", "_").isidentifier():
        raise not_allowed(key, text, form)
    arguments: dict[str, Any] = {}
    for word in words.split(",") if words else ():
        argument, equals, value = (part.strip() for part in word.partition("="))
        if not (argument.isidentifier() and equals and value) or argument in arguments:
            raise not_allowed(key, text, f"{form}, each argument once")
        arguments[argument] = value_of(value)
    if find_spec(library) is None:
        raise UserError(f"{key}: {text!r} needs another package: {INSTALL}")
    return NamedCall(key, text, library, name, arguments)


def value_of(text: str) -> Any:
    """Return a number, true, false, none or text; several joined by ``/`` are a tuple."""
    if "/" in text:
        return tuple(value_of(word) for word in text.split("/") if word)
    if text in WORDS:
        return WORDS[text]
    return text if (number := finite_number(text)) is None else number
