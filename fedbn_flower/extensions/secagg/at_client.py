"""What a node answers to the steps of secure aggregation."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from numpy.typing import NDArray

from fedbn_flower.strategies.messages.gate import record_of
from fedbn_flower.strategies.messages.npy import encoded, viewed

from ...core.ground.wire import COMPRESSED, CONFIG, SERVER_ROUND
from ...core.partition_id import check_node_config
from ...privacy.floors import Floors, Refused
from ...privacy.private_run import PrivateRun
from ..base import AtClient
from . import words
from .keys import ON
from .private import least_at_client
from .signatures import Signer, digest_of_heard
from .site import advertised, agreed, heard_in, helped, masked, shared_out


def answer_step(message: Message, context: Context, run: PrivateRun) -> Message:
    """Answer a step: advertise keys, share out secrets, or help to unmask.

    Raises
    ------
    UserError
        As `check_node_config` and `Floors.checked`; when the client does not do it.
    """
    check_node_config(context)
    Floors.checked(context.node_config, run)
    asked, state = message.content[words.SECAGG], context.state
    if not isinstance(asked, ConfigRecord) or run.secagg != ON:
        raise Refused("secagg: this run has no secure aggregation")
    number = record_of(message.content, CONFIG, ConfigRecord).get(SERVER_ROUND)
    signer = Signer.of(context, number if type(number) is int else 0)
    least = least_at_client(run, whole=signer is not None)
    if (step := asked.get(words.STEP)) == words.ADVERTISE:
        found = ConfigRecord(advertised(state, signer))  # type: ignore[arg-type]
    elif step == words.SHARE:
        found = shared_out(state, asked, least, signer)
    elif step == words.AGREE and signer:
        found = agreed(state, asked, signer)
    elif step == words.UNMASK:
        found = helped(state, asked, signer)
    else:
        raise Refused("secagg: there is no such step")
    content = RecordDict({words.SECAGG: found})
    upcoming = message.content.get(words.UPCOMING)
    if step == words.UNMASK and isinstance(upcoming, ConfigRecord):
        with contextlib.suppress(Refused):  # it is then not in the next sum, and this one is unmasked
            content[words.UPCOMING] = shared_out(state, upcoming, least, signer)
    return Message(content, reply_to=message)


class IntegerSum:
    """The sum of a group's integers, in the process that has trained them; it stands for a `GroupSum`."""

    def __init__(self) -> None:
        self.total: NDArray[np.unsignedinteger] | None = None

    def add(self, content: RecordDict, arrays: Mapping[str, NDArray]) -> None:
        """Add the vector of an answer."""
        vector = viewed(record_of(content, COMPRESSED, ArrayRecord)[words.VECTOR])
        if self.total is None:
            self.total = np.zeros_like(vector)
        self.total += vector

    def records(self) -> dict[str, ArrayRecord]:
        """Return the record of the sum. One answer of the group carries it."""
        return {} if self.total is None else {COMPRESSED: ArrayRecord({words.VECTOR: encoded(self.total)})}


def leaving(
    at: AtClient, vector: NDArray[np.unsignedinteger]
) -> tuple[ArrayRecord, dict[str, dict[str, NDArray]]]:
    """Return the record of a vector, masked with ``on``, and that of the keys of the next session."""
    if at.config.secagg != ON:
        return ArrayRecord({words.VECTOR: encoded(vector)}), {}
    state, signer = at.context.state, Signer.of(at.context, at.number)
    told = at.asked, at.context.run_config
    vector = masked(state, at.asked, vector, lambda: digest_of_heard(at.views().by_name(), *told))
    said = advertised(state, signer)
    if heard := heard_in(state, at.asked):
        said[words.HEARD] = heard
    keys = {name: np.frombuffer(value, np.uint8) for name, value in said.items()}
    return ArrayRecord({words.VECTOR: encoded(vector)}), {words.SECAGG: keys}
