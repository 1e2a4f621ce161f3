"""The keys of codecs: what clients send in place of their updates, and get in place of the model."""

from typing import Annotated, Literal

from pydantic import Field as setting

from fedbn_flower.strategies import Codec

from ...core.errors import not_allowed
from ...core.key_group import KeyGroup
from ...names import COMPRESS
from ...names.registry import FORMS
from ...names.with_argument import made

NONE = "none"
FEEDBACK = {"auto": None, "on": True, "off": False}
CODECS = f"none, topk:SHARE, randk:SHARE, qsgd:BITS with 2 to 8, bf16, sign, lowrank:RANK, or {FORMS}"


class Compression(KeyGroup):
    """Compression"""

    compress: Annotated[str, CODECS] = setting(
        NONE, description="codec of what clients send: their update of the shared trainable entries"
    )
    error_feedback: Literal["auto", "on", "off"] = setting(
        "auto",
        description="whether clients add what compress lost to their next update; auto: if it needs that",
    )
    compress_down: Literal["none", "bf16"] = setting(
        "none", description="to what the model is rounded that clients get; the server keeps it as it is"
    )

    @property
    def codec(self) -> Codec | None:
        """The codec of updates, or None.

        Raises
        ------
        UserError
            When there is none of that name, or its argument is not allowed.
        """
        if self.compress == NONE:
            return None
        return made(COMPRESS, self.compress, FEEDBACK[self.error_feedback])

    @property
    def keeps_residual(self) -> bool:
        """Whether clients remember what the codec lost."""
        return bool(self.codec and self.codec.feedback)

    @property
    def rounds_model(self) -> bool:
        """Whether the model is rounded that clients get."""
        return self.compress_down != NONE

    def check_codec(self) -> None:
        """Refuse a codec that there is not, and feedback without one.

        Raises
        ------
        UserError
            As `codec`.
        """
        if self.codec is None and self.error_feedback != "auto":
            raise not_allowed("error-feedback", self.error_feedback, "'auto' without compress")
