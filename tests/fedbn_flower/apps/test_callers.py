"""Calls of a legacy server's clients: what is around them is done once, what they send goes together."""

import random
import threading

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import FedAvg
from flwr.serverapp import ServerApp

from fedbn_flower import run_app
from fedbn_flower.apps import callers
from fedbn_flower.apps.callers import share_contents, together
from fedbn_flower.core.private import set_message_id

from .written import LEGACY_CLIENT


class Lossy(FedAvg):
    """Loses 3 of 10 calls of each kind before they are sent, counts the others, and raises each result."""

    def __init__(self, seed):
        super().__init__(initial_parameters=ndarrays_to_parameters([np.zeros(2)]), min_available_clients=20)
        self.drawn, self.calls, self.lost = random.Random(seed), [], []

    def configure_fit(self, server_round, parameters, client_manager):
        pairs = super().configure_fit(server_round, parameters, client_manager)
        return [(LossyProxy(proxy, self), ins) for proxy, ins in pairs]

    def aggregate_fit(self, server_round, results, failures):
        self.lost.append(len(failures))
        return super().aggregate_fit(server_round, results, failures)


class LossyProxy(ClientProxy):
    def __init__(self, inner, strategy):
        super().__init__(inner.cid)
        self.inner, self.strategy = inner, strategy

    def fit(self, ins, timeout, group_id):
        if self.strategy.drawn.random() < 0.3:
            raise ConnectionError("lost")
        self.strategy.calls.append((group_id, int(self.cid)))
        result = self.inner.fit(ins, timeout, group_id)
        result.num_examples = 1
        return result

    def get_properties(self, *_): ...
    def get_parameters(self, *_): ...
    def evaluate(self, *_): ...
    def reconnect(self, *_): ...


def test_what_a_proxy_does_around_its_client_is_done_once_and_in_order(tmp_path):
    """The model is the sum over rounds of the mean of 1, 2, ... of the clients whose calls are not lost."""
    strategy, names = Lossy(3), {}
    exec(LEGACY_CLIENT, names)
    server = ServerApp(
        server_fn=lambda context: ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=2))
    )
    result = run_app(server, names["app"], num_supernodes=20, backend="inline", run_dir=tmp_path / "run")

    asked = random.Random(3)
    drawn = [asked.random() for _ in range(40)]
    assert strategy.lost == [sum(one < 0.3 for one in drawn[:20]), sum(one < 0.3 for one in drawn[20:])]
    assert len(strategy.calls) == sum(one >= 0.3 for one in drawn)
    means = [
        np.mean([node - 1 for number, node in strategy.calls if number == server_round])
        for server_round in (1, 2)
    ]
    np.testing.assert_allclose(result.arrays["0"], [sum(means)] * 2)


def ask(number):
    """Send a message as a proxy does."""
    return threading.current_thread().ask(
        [Message(RecordDict({"a": ConfigRecord({"n": number})}), 2, "train")]
    )


def echo(sent):
    def send(messages):
        assert threading.current_thread() is threading.main_thread()
        sent.append([message.content["a"]["n"] for message in messages])
        for message in messages:
            set_message_id(message, f"{len(sent)}-{message.content['a']['n']}")
        return [Message(message.content, reply_to=message) for message in reversed(messages)]

    return send


def test_calls_that_ask_several_times_ask_together_each_time():
    def call(number):
        for _ in range(number):
            (reply,) = ask(number)
            assert reply.content["a"]["n"] == number
        if number == 2:
            raise SystemExit("two")
        return number

    sent = []
    outcomes = together([lambda n=n: call(n) for n in (2, 0, 3, 1)], echo(sent))
    assert sent[:3] == [[2, 3, 1], [2, 3], [3]]
    assert outcomes[1:] == [0, 3, 1]
    assert str(outcomes[0]) == "two"


def test_a_call_that_waits_for_another_does_not_stop_it(monkeypatch):
    """A lock held while a client works; only one at a time then does."""
    monkeypatch.setattr(callers, "PATIENCE", 0.01)
    lock, sent = threading.Lock(), []

    def call(number):
        with lock:
            return ask(number)[0].content["a"]["n"]

    assert together([lambda n=n: call(n) for n in range(4)], echo(sent)) == [0, 1, 2, 3]
    assert sorted(one for phase in sent for one in phase) == [0, 1, 2, 3]
    assert max(map(len, sent)) == 1


def test_no_thread_is_left_when_the_clients_are_interrupted():
    def interrupted(messages):
        raise KeyboardInterrupt

    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        together([lambda: ask(1), lambda: ask(2)], interrupted)
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    assert set(threading.enumerate()) <= before


def test_equal_contents_are_shared():
    contents = [RecordDict(), RecordDict(), RecordDict({"a": ConfigRecord({"b": 1})})]
    messages = [Message(content, 2, "train") for content in contents]
    share_contents(messages)
    assert messages[1].content is messages[0].content
    assert messages[2].content is contents[2]
