"""A client's error, from its worker to the door, which raises it again: Flower treats it as before."""

import json
import traceback

from ..core.errors import UserError
from .channel import InvalidPacket


class InWorker(Exception):
    """The traceback of an error in the worker, as its cause in the log."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def packed_failure(error: Exception) -> bytes:
    """Return what is told of an error: its kind, its text and its traceback."""
    kind = type(error)
    told = {
        "module": kind.__module__,
        "name": kind.__qualname__,
        "text": str(error),
        "mistake": isinstance(error, UserError),
        "import": isinstance(error, ImportError),
        "traceback": "".join(traceback.format_exception(error)),
    }
    return json.dumps(told).encode()


def failure_of(data: bytes) -> Exception:
    """Return an error of the same name and text, and the same to `except UserError` and ``ImportError``.

    Raises
    ------
    InvalidPacket
        When this is not of `packed_failure`.
    """
    try:
        told = json.loads(data)
        base = UserError if told["mistake"] else ImportError if told["import"] else Exception
        kind = type(told["name"].rpartition(".")[2], (base,), {"__module__": told["module"]})
        kind.__qualname__ = told["name"]
        error: Exception = kind(told["text"])
        error.__cause__ = InWorker(told["traceback"])
    except (AttributeError, KeyError, TypeError, ValueError) as wrong:
        raise InvalidPacket(f"not an error ({wrong})") from wrong
    return error
