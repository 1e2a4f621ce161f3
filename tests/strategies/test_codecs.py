"""Codecs of updates: by hand, their laws, and codes that stand for nothing."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import CODECS
from strategies.messages.codecs.updates import compressed, decompressed

VECTOR = np.array([0.5, -3.0, 0.0, 2.0, -0.25], np.float32)


def codec_of(text, feedback="auto"):
    name, _, argument = text.partition(":")
    return CODECS[name](argument, {"auto": None, "on": True, "off": False}[feedback])


def through(text, vector, feedback="auto", seed=0):
    codec = codec_of(text, feedback)
    return codec.decode(codec.encode(vector, np.random.default_rng(seed)), vector.size)


@pytest.mark.parametrize(
    ("text", "vector", "expected"),
    [
        ("topk:0.4", VECTOR, [0, -3, 0, 2, 0]),
        ("topk:0.01", VECTOR, [0, -3, 0, 0, 0]),
        ("randk:1", VECTOR, VECTOR),
        ("qsgd:2", np.array([0, -4, 0], np.float32), [0, -4, 0]),
        ("bf16", np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-9], np.float32), [1, 1, 1 + 2**-6, -1]),
    ],
)
def test_by_hand(text, vector, expected):
    np.testing.assert_array_equal(through(text, vector), np.asarray(expected, np.float32))


@pytest.mark.parametrize("text", ["randk:0.4", "qsgd:2", "qsgd:4"])
def test_the_mean_of_many_is_the_vector(text):
    """The deviation of a mean of 4000 is at most 5 / sqrt(4000) = 0.08; it is within four of them."""
    mean = np.mean([through(text, VECTOR, seed=seed) for seed in range(4000)], axis=0)
    np.testing.assert_allclose(mean, VECTOR, atol=0.32)


values = st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=40)


@settings(max_examples=50, deadline=None)
@given(values, st.sampled_from(["topk:0.2", "randk:0.2", "bf16"]))
def test_what_is_lost_is_no_longer_than_the_vector(vector, text):
    vector = np.array(vector, np.float32)
    lost = np.linalg.norm(vector - through(text, vector, "on"))
    share = 0.2 if text == "topk:0.2" else 0
    assert lost**2 <= (1 - share) * np.linalg.norm(vector) ** 2 * (1 + 1e-5) + 1e-30


def test_what_was_sent_and_the_residual_are_the_sum_of_the_updates():
    rng = np.random.default_rng(0)
    codec, residual, sent, total = codec_of("topk:0.2"), {}, 0, 0
    start = {"w": np.zeros((5, 2), np.float32)}
    for _ in range(10):
        update = {"w": rng.normal(size=(5, 2)).astype(np.float32)}
        _, given_, residual = compressed(codec, start, update, residual, rng)
        sent, total = sent + given_["w"], total + update["w"]
    np.testing.assert_allclose(sent + residual["w"], total, atol=1e-5)


def topk_answer(**changes):
    codes = {"indices": np.array([1, 3], np.uint32), "values": np.ones(2, np.float32), **changes}
    received = {"w": Array(np.zeros(5, np.float32)), "n": Array(np.array(3))}
    rest = ArrayRecord({"n": Array(np.array(4))})
    record = ArrayRecord({name: Array(array) for name, array in codes.items() if array is not None})
    return decompressed(codec_of("topk:0.4"), received, rest, record)


def test_codes_give_the_model():
    model = topk_answer()
    assert model["w"].numpy().tolist() == [0, 1, 0, 1, 0]
    assert model["n"].numpy() == 4


@pytest.mark.parametrize(
    "changes",
    [
        {"indices": np.array([1, 5], np.uint32)},
        {"indices": np.array([1, 1], np.uint32)},
        {"indices": np.array([1], np.uint32)},
        {"indices": np.array([1, 3], np.int64)},
        {"values": np.array([1, np.nan], np.float32)},
        {"values": None},
        {"more": np.zeros(1)},
    ],
)
def test_malformed_codes_are_refused(changes):
    with pytest.raises(ValueError, match=r"indices|values|has "):
        topk_answer(**changes)


def test_feedback_is_as_the_codec_needs_it():
    codecs = ("topk:0.1", "randk:0.1", "qsgd:4", "bf16")
    assert [codec_of(text).feedback for text in codecs] == [True, False, False, False]
