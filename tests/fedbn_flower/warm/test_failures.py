"""An error of a worker is, at the door, what Flower would have seen without one."""

import json
import traceback

import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.privacy.floors import Refused
from fedbn_flower.warm.channel import InvalidPacket, failure_of, packed_failure


class Outer:
    class Inner(ImportError):
        pass


def raised(error):
    try:
        raise error
    except type(error) as caught:
        return caught


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a\nb"),
        KeyError("key"),
        UserError("partition-id: 'x' is not allowed\x1b[2J"),
        Refused("privacy: no"),
        Outer.Inner("inner"),
        OSError(28, "No space left on device"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_same_in_flowers_words(error):
    """Its reason is made of ``str(type(error))`` and ``str(error)``. It asks whether it is an ImportError,
    and our log whether it is a UserError.
    """
    found = failure_of(packed_failure(raised(error)))
    assert (str(type(found)), str(found)) == (str(type(error)), str(error))
    for kind in (UserError, ImportError):
        assert isinstance(found, kind) == isinstance(error, kind)
    log = "".join(traceback.format_exception(found))
    assert "in raised" in log  # where it was raised in the worker


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", json.dumps({"module": "m", "name": 1, "text": "t"}).encode()]
)
def test_what_is_no_error(data):
    with pytest.raises(InvalidPacket, match="not an error"):
        failure_of(data)
