"""Calls of a legacy server: in order, and their outcomes where they belong."""

from types import SimpleNamespace

import pytest

from fedbn_flower.apps.run import legacy_servers_on
from fedbn_flower.core.private import legacy_server


def test_calls_are_made_in_order_when_they_are_waited_for():
    made = []

    def call(number):
        made.append(number)
        return ValueError("three") if number == 3 else number

    before = legacy_server.concurrent
    with legacy_servers_on(SimpleNamespace(send_and_receive=list)):
        futures = legacy_server.concurrent.futures
        with futures.ThreadPoolExecutor(max_workers=None) as executor:
            submitted = {executor.submit(call, number) for number in range(20)}
        assert made == []
        finished, waiting = futures.wait(fs=submitted, timeout=None)
    assert legacy_server.concurrent is before
    assert (made, waiting) == (list(range(20)), set())
    assert [one.result() for one in finished if not one.exception()] == [n for n in range(20) if n != 3]
    with pytest.raises(ValueError, match="three"):
        finished[3].result()
