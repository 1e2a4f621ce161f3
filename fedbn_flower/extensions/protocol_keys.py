"""The keys ``protocol``, ``concurrency`` and ``mixing``."""

from collections.abc import Mapping
from typing import Annotated, Any

from fedbn_flower.strategies.aggregation.buffers import FORM, SYNC, AsynchronousProtocol, protocol_of

from ..core.errors import not_allowed
from ..core.ground.settings import KeyGroup, setting

ALPHA = 0.6


class ProtocolKeys(KeyGroup):
    """Asynchronous protocols"""

    of_references = False
    after = "over-select"

    protocol: Annotated[str, FORM] = setting(
        SYNC,
        description="when the model is updated: after the clients of a round, after any K answers of "
        "clients that train all the time, or after each answer",
    )
    concurrency: int = setting(
        0, ge=0, description="how many clients train at once, with a protocol other than sync"
    )
    mixing: float = setting(
        ALPHA, gt=0, le=1, description="alpha of fedasync: the weight of a fresh answer against the model"
    )

    @property
    def asynchronous(self) -> AsynchronousProtocol | None:
        """The protocol; None if it is ``sync``.

        Raises
        ------
        UserError
            When there is no protocol of this name, or its arguments are not allowed.
        """
        return _protocol(self.protocol, self.mixing)


def asynchronous(config: Mapping[str, Any]) -> AsynchronousProtocol | None:
    """Return `ProtocolKeys.asynchronous` of a configuration by key."""
    return _protocol(config["protocol"], config["mixing"])


def _protocol(text: str, mixing: float) -> AsynchronousProtocol | None:
    try:
        return protocol_of(text, mixing)
    except ValueError:
        raise not_allowed("protocol", text, FORM) from None
