"""``compress``: clients send codes of their updates, and may get a rounded model."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import numpy as np
from flwr.app import ArrayRecord, Error, Message

from fedbn_flower.clients import NamedArrays, Update
from fedbn_flower.strategies import Codec
from fedbn_flower.strategies.messages.codecs import compressed, decompressed
from fedbn_flower.strategies.messages.npy import encoded, rounded, viewed

from ..core.errors import Conflict
from ..core.ground.settings import KeyGroup, setting
from ..core.ground.wire import ARRAYS, COMPRESSED
from ..core.private import ErrorCode
from ..names import COMPRESS, FORMS, made
from ..records.events import RunInfo
from .at_site import AtClient, Outgoing
from .base import Extension, Moment

NONE = "none"
RESIDUAL = "residual"
"""Memory group of the codec's residual e_i."""
CODEC = 31
"""The purpose of a codec's random numbers, after seed, partition and round."""
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
        """Whether clients keep the codec's residual (error feedback)."""
        return bool(self.codec and self.codec.feedback)

    @property
    def rounds_model(self) -> bool:
        """Whether clients get a rounded model."""
        return self.compress_down != NONE


def codec_named(text: str, feedback: str) -> Codec | None:
    """Return the codec of ``compress`` and ``error-feedback``; None for ``none``.

    Raises
    ------
    UserError
        When there is none of that name, or its argument is not allowed.
    """
    return None if text == NONE else made(COMPRESS, text, FEEDBACK[feedback])


class Compression(Extension):
    """Has clients send encoded updates, and rounds the model that they get to bfloat16.

    Parameters
    ----------
    run : RunInfo
        The run.
    codec : Codec, optional
        Of the updates; None where they are sent as they are.
    """

    place = 10  # next to the wire, except for sums: the other extensions see decoded models
    in_workers = True

    def __init__(self, run: RunInfo, codec: Codec | None) -> None:
        super().__init__(run)
        self.codec = codec
        self.given = ArrayRecord()
        """The model before it was rounded."""

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        feedback = config["error-feedback"]
        if codec_named(config["compress"], feedback) is None and feedback != "auto":
            yield Conflict("error-feedback", feedback, "'auto' without compress")

    def send(self, model: ArrayRecord, moment: Moment) -> ArrayRecord:
        self.given = model
        return model_to_send(model, moment.rounded)

    @classmethod
    def trained(cls, outgoing: Outgoing, at: AtClient) -> Outgoing:
        """Return the update's codes, the model that they decode to, and the entries that are sent uncoded.

        Further names of a tied tensor are sent as decoded values.
        """
        codec, client = at.config.codec, at.client
        if not codec:
            return outgoing
        model, received = outgoing.model(client.shared_names), at.received().by_name()
        names = [name for name in model if name in client.trained_names and model[name].dtype.kind == "f"]
        residual = (client.memory.read(RESIDUAL) or {}) if codec.feedback else {}
        rng = np.random.default_rng([*client.task.seed, at.number, CODEC])
        trained = {name: model[name] for name in names}
        codes, given, residual = compressed(codec, received, trained, residual, rng)
        if codec.feedback:
            client.memory.write(RESIDUAL, residual)
        tied = {alias: given[name] for name in names for alias in client.aliases.get(name, ())}
        whole = {**model, **tied, **given}
        update = outgoing.update
        made = Update(NamedArrays(whole), update.num_examples, update.metrics, update.records)
        travels = {name: whole[name] for name in whole if name not in given}
        return Outgoing(made, travels, codes)

    def received(self, answer: Message, asked: Message, moment: Moment) -> Message:
        """Return an answer with its model decoded, or an error if decoding fails."""
        if not self.codec or not answer.has_content():
            return answer
        content = answer.content
        if moment.rule._takes_sums_ and COMPRESSED not in content:
            return answer
        model, codes = content.get(ARRAYS), content.pop(COMPRESSED, None)
        try:
            if not isinstance(model, ArrayRecord) or not isinstance(codes, ArrayRecord):
                raise ValueError("missing; the client and the server are to have the same codec")
            content[ARRAYS] = decompressed(self.codec, asked.content.array_records[ARRAYS], model, codes)
        except Exception as error:  # invalid codes cost only the client's own answer
            reason = f"{COMPRESSED}: {error}"
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=asked)
        return answer

    def published(
        self, model: ArrayRecord, before: ArrayRecord, sent: ArrayRecord, moment: Moment
    ) -> ArrayRecord:
        """Return the next model, with the rounding error of the parameters added back.

        The rule computes ``sent + step`` from the rounded model; the result here is ``given + step``. The
        pseudo-gradient is relative to the rounded model that clients got.
        """
        if model is before or sent is self.given:
            return model
        entries = dict(model)
        for name in moment.stepped:
            moved, x, got = (viewed(record[name]) for record in (model, self.given, sent))
            with np.errstate(invalid="ignore"):  # an entry may be inf, as in attention masks
                entries[name] = encoded(np.where(x == got, moved, moved + (x - got)).astype(x.dtype))
        return ArrayRecord(entries)


def model_to_send(model: ArrayRecord, names: frozenset[str]) -> ArrayRecord:
    """Return the model as clients get it: entries of these names are rounded to bfloat16."""
    if not names:
        return model
    return ArrayRecord({name: rounded(a) if name in names else a for name, a in model.items()})
