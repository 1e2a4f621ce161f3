"""The keys of asynchronous protocols, and which values of all keys go together with them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import Field as setting

from fedbn_flower.strategies.aggregation.buffers import (
    FORM,
    SYNC,
    AsynchronousProtocol,
    FedAsync,
    protocol_of,
)
from fedbn_flower.strategies.post_processing import goes_with_buffers

from ...core.errors import not_allowed
from ...core.key_group import KeyGroup, flag_of
from ...names import STRATEGY

if TYPE_CHECKING:
    from ..run_config import RunConfig

ALPHA = 0.6


class Protocol(KeyGroup):
    """Asynchronous protocols"""

    protocol: Annotated[str, FORM] = setting(
        SYNC,
        description="when the model is updated: after the clients of a round, after any K answers of clients "
        "that train all the time, or after each",
    )
    concurrency: int = setting(
        0, ge=0, description="how many clients train at once, with a protocol other than sync"
    )
    mixing: float = setting(
        ALPHA, gt=0, le=1, description="alpha of fedasync: the weight of a fresh answer beside the model"
    )

    @property
    def asynchronous(self) -> AsynchronousProtocol | None:
        """The protocol; None if it is ``sync``.

        Raises
        ------
        UserError
            When there is none of this name, or its arguments are not allowed.
        """
        try:
            return protocol_of(self.protocol, self.mixing)
        except ValueError:
            raise not_allowed("protocol", self.protocol, FORM) from None


def check_protocol(config: "RunConfig") -> None:
    """Refuse keys of protocols that do not go together, or with the other keys.

    Raises
    ------
    UserError
        For the first one.
    """
    protocol = config.asynchronous
    if config.mixing != ALPHA and not isinstance(protocol, FedAsync):
        raise not_allowed("mixing", config.mixing, f"{ALPHA}, its default, with protocol {config.protocol!r}")
    if protocol is None:
        if config.concurrency:
            raise not_allowed("concurrency", config.concurrency, f"0 with protocol {SYNC!r}")
        return
    for key, value, wanted in _unfit(config, protocol):
        raise not_allowed(key, value, f"{wanted} with protocol {config.protocol!r}")


def _unfit(config: "RunConfig", protocol: AsynchronousProtocol) -> Iterator[tuple[str, object, str]]:
    """Yield each key whose value does not go with a protocol, with the value and what is allowed."""
    most = config.num_training
    if protocol.size > most:
        raise not_allowed(
            "protocol", config.protocol, f"a buffer of at most {most}: a client answers once in it"
        )
    if config.dp != "none":
        yield "dp", config.dp, "'none', since an answer's weight depends on its staleness,"
    if config.devices == "none" and config.eval_model == "local":
        wanted = "'aggregated' without devices, since no client knows in which round its answer lands,"
        yield "eval-model", config.eval_model, wanted
    if not 1 <= config.concurrency <= most:
        yield "concurrency", config.concurrency, f"from 1 to {most}, the clients that train,"
    for key, wanted in {
        "fraction_train": "1.0 (concurrency says how many train)",
        "selection": "'uniform'",
        "round_deadline": "0, since no answer is too late,",
        "over_select": "1, since no answer is too late,",
        "stragglers": "0.0, since who is slow answers later,",
        "dropout": "0.0, since every client that is asked answers,",
        "availability": "'always'",
        "compress_down": "'none', since clients train older models,",
        "unfreeze_at": "0, since clients train older models,",
    }.items():
        if (value := getattr(config, key)) != type(config).model_fields[key].default:
            yield flag_of(key), value, wanted
    if not goes_with_buffers(STRATEGY.find(config.strategy)):
        yield (
            "strategy",
            config.strategy,
            "a rule that uses nothing but the mean of answers, scaled as they are,",
        )
