"""``compress``: what clients send in place of their updates, and get in place of the model."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field as setting

from fedbn_flower.strategies import Codec

from ..core.key_group import KeyGroup
from ..names import COMPRESS, FORMS, made
from .base import Extension
from .conflict import Conflict

NONE = "none"
FEEDBACK = {"auto": None, "on": True, "off": False}
CODECS = f"none, topk:SHARE, randk:SHARE, qsgd:BITS with 2 to 8, bf16, sign, lowrank:RANK, or {FORMS}"


class CompressionKeys(KeyGroup):
    """Compression"""

    after = "round-timeout"

    compress: Annotated[str, CODECS] = setting(
        NONE, description="codec for what clients send: their update of the shared trainable entries"
    )
    error_feedback: Literal["auto", "on", "off"] = setting(
        "auto",
        description="whether clients add what compression lost to their next update; auto: if the codec "
        "needs it",
    )
    compress_down: Literal["none", "bf16"] = setting(
        "none",
        description="precision to which the model is rounded for the clients; the server keeps it as it is",
    )

    @property
    def codec(self) -> Codec | None:
        """The codec of updates, or None.

        Raises
        ------
        UserError
            When there is none of that name, or its argument is not allowed.
        """
        return codec_named(self.compress, self.error_feedback)

    @property
    def keeps_residual(self) -> bool:
        """Whether clients remember what the codec lost."""
        return bool(self.codec and self.codec.feedback)

    @property
    def rounds_model(self) -> bool:
        """Whether the model is rounded that clients get."""
        return self.compress_down != NONE


def codec_named(text: str, feedback: str) -> Codec | None:
    """Return the codec of ``compress`` and ``error-feedback``; None of ``none``.

    Raises
    ------
    UserError
        When there is none of that name, or its argument is not allowed.
    """
    return None if text == NONE else made(COMPRESS, text, FEEDBACK[feedback])


class Compression(Extension):
    """Makes messages smaller by a codec."""

    keys = CompressionKeys

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        feedback = config["error-feedback"]
        if codec_named(config["compress"], feedback) is None and feedback != "auto":
            yield Conflict("error-feedback", feedback, "'auto' without compress")
