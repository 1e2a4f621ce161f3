"""Codecs of updates, one file each: what travels in place of ``trained - received``."""

from functools import cache
from pkgutil import resolve_name

from .base import Codec

_PLACES = {"topk": "topk:TopK", "randk": "randk:RandK", "qsgd": "qsgd:Qsgd", "bf16": "bf16:Bf16"}
"""Built-in codecs: name -> ``module:Class`` in this package. To add one, add a line here."""

CODECS: dict[str, type[Codec]] = {
    name: resolve_name(f"{__name__}.{place}") for name, place in _PLACES.items()
}

NONE = "none"
FORM = "none, topk:SHARE, randk:SHARE, qsgd:BITS (2 to 8) or bf16"


@cache
def codec_of(text: str, feedback: str = "auto") -> Codec | None:
    """Return the codec of ``NAME`` or ``NAME:ARGUMENT``; None for ``none``.

    ``feedback`` is ``on``, ``off``, or ``auto``: as the codec needs it.

    Raises
    ------
    ValueError
        When there is none of this name, or its argument is not allowed.
    """
    name, _, argument = text.partition(":")
    if text == NONE:
        return None
    if name not in CODECS:
        raise ValueError(f"no codec {name!r}")
    cls = CODECS[name]
    return cls(argument, cls.needs_feedback if feedback == "auto" else feedback == "on")


__all__ = ["CODECS", "FORM", "NONE", "Codec", "codec_of"]
