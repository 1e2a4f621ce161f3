"""The single gate: whatever a site sends, in any phase, is read and checked here before it is used.

A site is a SuperNode with a client; it may send anything. What it sends is decoded (`content_of`,
`record_of`, `numbers_of`, `text_of`), typed and ranged by the reader of the phase, and made `printable`. What
cannot be used raises `ReplyRefused`, which costs that site its answer and is one line.

| phase | message | reader |
|---|---|---|
| identity | `QUERY_PARTITION_ID` | `nodes.NodeDirectory` |
| statistics | `QUERY_MOMENTS`, `QUERY_COUNTS`, `QUERY_SIZES` | the app that asks, through `answers` |
| train | ``train`` | `reply_reader.ReplyReader`, through `replies.Replies` |
| evaluate | ``evaluate`` | `validation.check_metrics` and `ExpectedMetrics`, through `replies.Replies` |
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

T = TypeVar("T")
Kind = TypeVar("Kind", ArrayRecord, ConfigRecord, MetricRecord)

ERROR = "error"  # the client itself reported a failure
MAX_REASON = 500  # characters kept of a text: a malicious client may send megabytes
MESSAGE = "Exception ClientAppException occurred. Message: "
ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # colours, the cursor
    r"|(?:\x1b[]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links
    r"|\x1b[ -/]*[0-~]?"
)
ROOT = r"(?:~|[A-Za-z]:)?[\\/]"
PATHS = re.compile(
    rf"(?P<quote>['\"])(?P<quoted>{ROOT}[^'\"]*)(?P=quote)"  # may have spaces
    rf"|(?<![\w.:/\\])(?P<bare>{ROOT}[^\s'\"(){{}}<>\[\],;:]+)"
)
NPY_HEADER_BYTES = 4096


class ReplyRefused(Exception):
    """A client's answer cannot be used; the message says why.

    ``kind`` is set if the two apps disagree: ``names``, ``shape``, ``records``, ... It is empty if the
    problem may be this client's alone, such as a value that is not finite.
    """

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


def printable(text: str, limit: int = MAX_REASON) -> str:
    """Return a site's text as one line of at most ``limit`` characters, without escapes and control ones."""
    plain = ESCAPES.sub("", text[:limit])
    return " ".join("".join(c if c.isprintable() else " " for c in plain).split())


def without_folders(text: str) -> str:
    """Return a text with absolute paths reduced to their last part, as a site's folders are private."""

    def last(found: re.Match[str]) -> str:
        quote, path = found["quote"] or "", found["quoted"] or found["bare"]
        return quote + re.split(r"[\\/]", path.rstrip("\\/"))[-1] + quote

    return PATHS.sub(last, text)


def cause(reason: str) -> str:
    """Return the message of a reason that is a traceback; other reasons are returned as they are.

    Flower's Ray workers begin a traceback with their process and address, which differ between runs.
    """
    end = reason[-4 * MAX_REASON :]
    message = end.rpartition(MESSAGE)[2] if MESSAGE in end else ""
    if not message and '", line ' in reason and "\n" in reason:
        message = next((line for line in reversed(end.splitlines()) if line.strip(" '>")), "")
    return message.strip().removesuffix("'>").strip() or reason


@contextmanager
def refusing() -> Iterator[None]:
    """Refuse an answer on which anything within fails: a site may send anything.

    Raises
    ------
    ReplyRefused
        In the place of any other exception.
    """
    try:
        yield
    except ReplyRefused:
        raise
    except Exception as error:
        raise ReplyRefused(f"cannot be read ({type(error).__name__}: {error})") from error


def content_of(reply: Message) -> RecordDict:
    """Return the records of a reply.

    Raises
    ------
    ReplyRefused
        When it is an error, or empty.
    """
    if reply.has_error():
        reason = without_folders(cause(str(reply.error.reason or ""))[: 4 * MAX_REASON])
        raise ReplyRefused(reason or f"error code {reply.error.code}", ERROR)
    if not reply.has_content():
        raise ReplyRefused("empty message", ERROR)
    return reply.content


def record_of(content: RecordDict, name: str, kind: type[Kind]) -> Kind:
    """Return a record of an answer.

    Raises
    ------
    ReplyRefused
        When it is missing, or of another kind.
    """
    record = content.get(name)
    if not isinstance(record, kind):
        raise ReplyRefused(f"the {kind.__name__} {name!r} is missing", f"no {name}")
    return record


def numbers_of(content: RecordDict, name: str, entries: int, size: int) -> dict[str, NDArray]:
    """Return at most ``entries`` arrays of an ArrayRecord, each of at most ``size`` real numbers, by name.

    Raises
    ------
    ReplyRefused
        When the record is missing, has more, or an array cannot be decoded or is not of numbers.
    """
    record = record_of(content, name, ArrayRecord)
    if len(record) > entries:
        raise ReplyRefused(f"{name}: {len(record)} arrays, at most {entries}", "names")
    found: dict[str, NDArray] = {}
    for key, entry in record.items():
        if len(entry.data) > 8 * size + NPY_HEADER_BYTES:
            raise ReplyRefused(f"{name}: {key}: {len(entry.data)} bytes, expected at most {size} numbers")
        try:
            array = entry.numpy()
        except Exception as error:
            raise ReplyRefused(f"{name}: {key}: cannot be decoded ({error})") from error
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub" or array.size > size:
            raise ReplyRefused(f"{name}: {key}: expected at most {size} numbers")
        found[key] = array
    return found


def text_of(content: RecordDict, name: str, key: str, size: int) -> str:
    """Return a text of at most ``size`` characters in a ConfigRecord.

    Raises
    ------
    ReplyRefused
        When the record or the text is missing, or is longer.
    """
    text = record_of(content, name, ConfigRecord).get(key)
    if not isinstance(text, str):
        raise ReplyRefused(f"{name}: {key!r} is no text", f"no {key}")
    if len(text) > size:
        raise ReplyRefused(f"{name}: {key!r} has {len(text)} characters, at most {size}")
    return text


def answers(
    sent: Sequence[Message], replies: Iterable[Message], read: Callable[[RecordDict], T]
) -> Iterator[tuple[int, T | ReplyRefused]]:
    """Yield (node, result of ``read`` or the reason for refusal) for the first reply to each message.

    Replies to other messages, and second replies, are ignored. An error may come from Flower itself, so a
    reply is identified by the message that it answers.
    """
    arrived = list(replies)  # messages get their ids when they are sent
    waiting = {message.metadata.message_id: message.metadata.dst_node_id for message in sent}
    for reply in arrived:
        node = waiting.pop(reply.metadata.reply_to_message_id, None)
        if node is None:
            continue
        try:
            with refusing():
                found: T | ReplyRefused = read(content_of(reply))
        except ReplyRefused as refusal:
            found = ReplyRefused(printable(str(refusal)), refusal.kind)
        yield node, found
