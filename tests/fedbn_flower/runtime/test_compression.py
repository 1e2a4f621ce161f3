"""Runs with compressed updates."""

import pytest

from fedbn_flower.config.trust import code_in
from fedbn_flower.core.errors import UserError
from fedbn_flower.federation.federation import Federation
from fedbn_flower.runtime import InlineGrid
from strategies.messages.wire import COMPRESSED

from .test_sums import CLIENTS, run


@pytest.mark.parametrize("text", ["topk:0.05", "qsgd:4", "sign", "lowrank:2"])
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


OWN = """
import numpy as np
from fedbn_flower.strategies import Codec


class Half(Codec):
    def layout(self, size):
        return {"values": ((size,), "float16")}

    def encode(self, vector, rng):
        return {"values": vector.astype(np.float16)}

    def decode(self, codes, size):
        return codes["values"].astype(np.float32)


class Unfinished(Codec):
    pass
"""


def test_one_of_ones_own(configured, tmp_path):
    """It halves what travels of 650 parameters, and its code is not run where it is not trusted."""
    (tmp_path / "own.py").write_text(OWN)
    name = f"{tmp_path / 'own.py'}:Half"
    values = {
        "partition": "iid",
        "num_clients": CLIENTS,
        "model": "linear",
        "client": "fedavg",
        "fraction_evaluate": 0,
    }
    own, plain = (run(configured(**values, **more), summed=True) for more in ({"compress": name}, {}))
    saved = (2 * 650 + 128) * CLIENTS  # and one header in place of two
    assert [told[-1][1] for told in plain[1]] == [told[-1][1] + saved for told in own[1]]
    assert code_in("compress", name) == {str(tmp_path / "own.py")}
    with pytest.raises(UserError, match="^compress: '.*:Unfinished' raised TypeError: Can't instantiate"):
        configured(compress=f"{tmp_path / 'own.py'}:Unfinished")


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"compress": "topk:2"}, "compress: 'topk:2' is not allowed; expected topk:SHARE, with a share in"),
        ({"compress": "randk"}, "compress: 'randk' is not allowed; expected randk:SHARE, with a share in"),
        ({"compress": "qsgd:9"}, "compress: 'qsgd:9' is not allowed; expected qsgd:BITS, with 2 to 8 bits"),
        (
            {"compress": "lowrank:0"},
            "compress: 'lowrank:0' is not allowed; expected lowrank:RANK",
        ),
        ({"compress": "bf16:2"}, "compress: 'bf16:2' is not allowed; expected nothing after its name"),
        ({"compress": "topkk:0.1"}, r"unknown name 'topkk' \(did you mean 'topk'\?\)"),
        ({"error_feedback": "on"}, "error-feedback: 'on' is not allowed"),
        ({"compress": "bf16", "dp": "client"}, "compress: 'bf16' is not allowed"),
    ],
)
def test_mistakes_are_one_line(configured, values, line):
    with pytest.raises(UserError, match=line):
        configured(**values)
