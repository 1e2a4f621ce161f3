"""Runs with compressed updates."""

import numpy as np
import pytest

from fedbn_flower.config.trust import code_in
from fedbn_flower.core.errors import UserError
from fedbn_flower.core.ground.wire import ARRAYS, COMPRESSED
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.server.federation import Federation
from strategies.messages.npy import viewed

from ..records.helpers import Watching
from .test_simulation import Listening
from .test_sums import CLIENTS
from .test_sums import run as ran


@pytest.mark.slow
@pytest.mark.parametrize("text", ["topk:0.05", "qsgd:4", "sign", "lowrank:2"])
def test_the_same_bits_and_bytes_where_workers_sum(configured, text):
    values = {"partition": "iid", "num_clients": CLIENTS, "client": "fedbn", "fraction_evaluate": 0}
    config = configured(**values, compress=text)
    apart = ran(config, summed=False)
    assert ran(config, summed=True) == apart
    plain = ran(configured(**values), summed=True)
    assert apart[1][0][-1][1] < 0.5 * plain[1][0][-1][1]
    assert not apart[1][0][1]


@pytest.mark.parametrize("feedback", ["off", "on"])
def test_each_client_draws_other_places_in_each_round(configured, feedback):
    """Two clients in two rounds: four different seeds, and so four sets of places."""
    config = configured(fraction_evaluate=0, compress="randk:0.1", error_feedback=feedback)
    federation = Federation(config)
    federation.strategy._takes_sums_ = False
    seeds = []

    class Heard(InlineGrid):
        def work(self, messages, timeout):
            for reply in super().work(messages, timeout):
                seeds.append(int(reply.content[COMPRESSED]["seed"].numpy()[0]))
                yield reply

    federation.run(Heard(2, config.to_user_config()), [])
    assert len(seeds) == len({*seeds}) == 4


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
    watching = Watching(lambda result: failures.append(result.train.failures))
    federation.run(Lying(3, config.to_user_config()), [watching])
    assert failures == [{1: "compressed: has indices, expected indices, values"}]


DOWN = {"partition": "iid", "num_clients": CLIENTS, "model": "linear", "client": "shared"}
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


@pytest.mark.slow
def test_one_of_ones_own(configured, tmp_path):
    """It halves what travels of 650 parameters, and its code is not run where it is not trusted."""
    (tmp_path / "own.py").write_text(OWN)
    name = f"{tmp_path / 'own.py'}:Half"
    values = DOWN | {"fraction_evaluate": 0}
    own, plain = (ran(configured(**values, **more), summed=True) for more in ({"compress": name}, {}))
    saved = (2 * 650 + 128) * CLIENTS  # and one header in place of two
    assert [told[-1][1] for told in plain[1]] == [told[-1][1] + saved for told in own[1]]
    assert code_in("compress", name) == {str(tmp_path / "own.py")}
    with pytest.raises(UserError, match="^compress: '.*:Unfinished' raised TypeError: Can't instantiate"):
        configured(compress=f"{tmp_path / 'own.py'}:Unfinished")


def test_a_rounded_model_moves_by_what_clients_found_from_it(configured):
    """``x+ = x + step(D)`` with D relative to the rounded x that clients got, by hand from what travelled."""
    config = configured(**DOWN, strategy="fedavg", compress_down="bf16", rounds=1, fraction_evaluate=0)
    federation, grid = Federation(config), Listening(config)
    federation.strategy._takes_sums_ = False
    arrays = federation.run(grid, [])
    trained = [message for message in grid.heard if message.metadata.message_type == "train"]
    sent, replies = trained[0], [message for message in trained if "metrics" in message.content]
    weights = [reply.content["metrics"]["num-examples"] for reply in replies]
    for name, initial in federation.initial.items():
        got = viewed(sent.content[ARRAYS][name])
        assert not (got.view(np.uint32) & 0xFFFF).any()
        assert (got != initial).any()
        assert (np.abs(got - initial) <= 2.0**-8 * np.abs(initial)).all()
        differences = [reply.content[ARRAYS][name].numpy().astype(np.float64) - got for reply in replies]
        expected = initial + np.average(differences, axis=0, weights=weights)
        np.testing.assert_allclose(arrays[name].numpy(), expected, atol=1e-7)
        assert (arrays[name].numpy().view(np.uint32) & 0xFFFF).any()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "values", [{"compress": "sign"}, {"strategy": "fedyogi", "client": "fedbn", "model": "mlp-bn"}]
)
def test_the_way_down_has_half_the_bytes_and_the_same_bits_everywhere(configured, values):
    """Of the models to train and to evaluate; the bytes of a linear model's two arrays are 2 a number."""
    keys = {**DOWN, **values, "compress_down": "bf16", "holdout_clients": 1}
    apart = ran(configured(**keys), summed=False)
    assert ran(configured(**keys), summed=True) == apart
    if keys["model"] == "linear":
        assert {told[-1][0] for told in apart[1][:-1]} == {2 * (CLIENTS - 1) * 2 * 650}


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"compress": "topk:2"}, "compress: 'topk:2' is not allowed; expected topk:SHARE, with a share in"),
        (
            {"compress": "topk:half"},
            "compress: 'topk:half' is not allowed; expected topk:SHARE, with a share in",
        ),
        ({"compress": "randk"}, "compress: 'randk' is not allowed; expected randk:SHARE, with a share in"),
        ({"compress": "qsgd:9"}, "compress: 'qsgd:9' is not allowed; expected qsgd:BITS, with 2 to 8 bits"),
        ({"compress": "lowrank:0"}, "compress: 'lowrank:0' is not allowed; expected lowrank:RANK"),
        ({"compress": "bf16:2"}, "compress: 'bf16:2' is not allowed; expected nothing after its name"),
        ({"compress": "topkk:0.1"}, r"unknown name 'topkk' \(did you mean 'topk'\?\)"),
        ({"error_feedback": "on"}, "error-feedback: 'on' is not allowed"),
        ({"compress": "bf16", "dp": "client"}, "compress: 'bf16' is not allowed"),
        ({"compress_down": "bf16", "dp": "client"}, "compress-down: 'bf16' is not allowed"),
        ({"compress_down": "delta"}, "compress-down: 'delta' is not allowed; expected one of 'none', 'bf16'"),
    ],
)
def test_mistakes_are_one_line(configured, values, line):
    with pytest.raises(UserError, match=line):
        configured(**values)


QUADRATIC = {
    "dataset": "quadratic:5", "num_clients": 4, "client": "shared", "strategy": "fedavg", "batch_size": 0,
    "local_epochs": 1, "client_lr": 0.3, "client_lr_schedule": "cosine:0", "rounds": 40,
    "fraction_evaluate": 0.0, "evaluate_every": 40, "checkpoint_every": 0,
}  # fmt: skip


@pytest.mark.slow
def test_feedback_reaches_the_optimum_that_without_it_is_missed(run):
    """The optimum is in closed form. One step of all examples a round is gradient descent: FedAvg gets there
    too. The rate falls to 0, since what is not sent yet is as large as a step."""

    def distance(codec, feedback):
        name = f"{codec}-{feedback}".replace(":", "-")
        result = run(**QUADRATIC, compress=codec, error_feedback=feedback, run_dir=name)
        return result.summary["global"]["distance"]

    assert distance("none", "auto") < 0.02
    for codec in ("topk:0.2", "sign"):
        assert distance(codec, "off") > 0.3
        assert distance(codec, "on") < 0.05
