"""Runs with compressed updates."""

import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.federation.federation import Federation
from fedbn_flower.runtime import InlineGrid
from strategies.messages.wire import COMPRESSED

from .test_sums import CLIENTS, run


@pytest.mark.parametrize("text", ["topk:0.05", "qsgd:4"])
def test_the_same_bits_and_bytes_where_workers_sum(configured, text):
    values = {"partition": "iid", "num_clients": CLIENTS, "client": "fedbn", "fraction_evaluate": 0}
    config = configured(**values, compress=text)
    apart = run(config, summed=False)
    assert run(config, summed=True) == apart
    plain = run(configured(**values), summed=True)
    assert apart[1][0][-1][1] < 0.5 * plain[1][0][-1][1]
    assert not apart[1][0][1]


class Lying(InlineGrid):
    def work(self, messages, timeout):
        for position, reply in enumerate(super().work(messages, timeout)):
            if position == 1 and COMPRESSED in reply.content:
                del reply.content[COMPRESSED]["values"]
            yield reply


def test_a_malformed_answer_costs_itself_only(configured):
    config = configured(partition="iid", num_clients=3, rounds=1, fraction_evaluate=0, compress="topk:0.1")
    federation, failures = Federation(config), []
    federation.strategy._takes_sums_ = False

    class Told:
        def on_round(self, result):
            failures.append(result.train.failures)

        def on_answer(self, *_):
            pass

    federation.run(Lying(3, config.to_user_config()), [Told()])
    assert failures == [{1: "compressed: has indices, expected indices, values"}]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"compress": "topk:2"}, "compress: 'topk:2' is not allowed"),
        ({"compress": "zip"}, "compress: 'zip' is not allowed"),
        ({"error_feedback": "on"}, "error-feedback: 'on' is not allowed"),
        ({"compress": "bf16", "dp": "client"}, "compress: 'bf16' is not allowed"),
    ],
)
def test_mistakes_are_one_line(configured, values, line):
    with pytest.raises(UserError, match=line):
        configured(**values)
