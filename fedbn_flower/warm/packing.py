"""What passes between a door and its worker, as parts of a packet: Flower's own bytes, and every array's.

The arrays lie outside Flower's messages, which cannot be longer than 2 GiB and would copy them.
"""

import copy
import json
from collections.abc import Iterator, Sequence

from flwr.app import Array, ArrayRecord, Context, Message, RecordDict

from ..core.private import (
    context_bytes,
    context_of,
    identify_process,
    message_bytes,
    message_of,
    process_identity,
    records_bytes,
    records_of,
    replace_data,
    without_content,
)
from .channel import InvalidPacket


def packed_request(message: Message, context: Context) -> list[bytes]:
    """Return a message to a client and its context as parts, with the identity of this process."""
    empty = copy.copy(context)
    empty.state = RecordDict()
    identity = json.dumps(process_identity()).encode()
    return [identity, context_bytes(empty), *_packed(message), *_packed_records(context.state)]


def request_of(parts: Sequence[bytes]) -> tuple[Message, Context]:
    """Return what `packed_request` was given; this process takes the identity of the other one.

    Raises
    ------
    InvalidPacket
        When these are not its parts.
    """
    rest = iter(parts)
    try:
        identify_process(*json.loads(next(rest)))
        context = context_of(next(rest))
        message = _message_of(rest)
        context.state = _records_of(rest)
    except (StopIteration, RuntimeError, TypeError, ValueError) as error:
        raise InvalidPacket(f"not a request ({error})") from error
    return message, context


def packed_reply(reply: Message, state: RecordDict) -> list[bytes]:
    """Return a client's reply and its state as parts."""
    return [*_packed(reply), *_packed_records(state)]


def reply_of(parts: Sequence[bytes]) -> tuple[Message, RecordDict]:
    """Return what `packed_reply` was given.

    Raises
    ------
    InvalidPacket
        When these are not its parts.
    """
    rest = iter(parts)
    try:
        return _message_of(rest), _records_of(rest)
    except (StopIteration, RuntimeError, ValueError) as error:
        raise InvalidPacket(f"not a reply ({error})") from error


def packed_state(state: RecordDict) -> list[bytes]:
    """Return a client's state as parts."""
    return list(_packed_records(state))


def state_of(parts: Sequence[bytes]) -> RecordDict:
    """Return what `packed_state` was given.

    Raises
    ------
    InvalidPacket
        When these are not its parts.
    """
    try:
        return _records_of(iter(parts))
    except (StopIteration, RuntimeError, ValueError) as error:
        raise InvalidPacket(f"not a state ({error})") from error


def _packed(message: Message) -> Iterator[bytes]:
    yield message_bytes(without_content(message))
    yield from _packed_records(message.content if message.has_content() else RecordDict())


def _message_of(parts: Iterator[bytes]) -> Message:
    message, content = message_of(next(parts)), _records_of(parts)
    if message.has_content():
        message.content = content
    return message


def _packed_records(records: RecordDict) -> Iterator[bytes]:
    bare = {
        name: ArrayRecord({k: Array(a.dtype, a.shape, a.stype, b"") for k, a in record.items()})
        if isinstance(record, ArrayRecord)
        else record
        for name, record in records.items()
    }
    yield records_bytes(RecordDict(bare))
    yield from (array.data for record in records.array_records.values() for array in record.values())


def _records_of(parts: Iterator[bytes]) -> RecordDict:
    records = records_of(next(parts))
    for record in records.array_records.values():
        for array in record.values():
            replace_data(array, next(parts))
    return records
