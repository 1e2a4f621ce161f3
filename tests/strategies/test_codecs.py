"""Codecs of updates: by hand, their laws, and codes that stand for nothing."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import CODECS
from strategies.messages.codecs import compressed, decompressed

VECTOR = np.array([0.5, -3.0, 0.0, 2.0, -0.25], np.float32)


def codec_of(text, feedback="auto"):
    name, _, argument = text.partition(":")
    return CODECS[name](argument, {"auto": None, "on": True, "off": False}[feedback])


def through(text, vector, feedback="auto", seed=0):
    codec = codec_of(text, feedback)
    return codec.decode(codec.encode(np.float32(vector), np.random.default_rng(seed)), vector.size)


@pytest.mark.parametrize(
    ("text", "vector", "expected"),
    [
        ("topk:0.4", VECTOR, [0, -3, 0, 2, 0]),
        ("topk:0.01", VECTOR, [0, -3, 0, 0, 0]),
        ("topk:0.3", VECTOR, [0, -3, 0, 2, 0]),
        ("topk:0.5", np.resize([1, -2, 1], 300), [1, -2, 1] * 25 + [0, -2, 0] * 75),  # ties: the first
        ("randk:1", VECTOR, VECTOR),
        ("qsgd:2", np.array([0, -4, 0], np.float32), [0, -4, 0]),
        ("sign", VECTOR, [1.15, -1.15, 1.15, 1.15, -1.15]),
        ("lowrank:1", VECTOR, VECTOR),
        ("bf16", np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-9], np.float32), [1, 1, 1 + 2**-6, -1]),
    ],
)
def test_by_hand(text, vector, expected):
    np.testing.assert_array_equal(through(text, vector), np.asarray(expected, np.float32))


SHARES = [
    ("0.3", 5, 2),  # 1.5, rounded up
    ("0.07", 100, 7),  # the product of floats is 7.000000000000001
    ("0.29", 100, 29),
    ("0.55", 100, 55),
    ("7e-2", 100, 7),
    ("0.070001", 100, 8),
    ("0.001", 100, 1),
    ("1", 100, 100),
    ("0.5", 0, 0),
]


def test_a_share_counts_as_the_decimal_number_that_it_is():
    """Also where it is a whole number of values, which no random share hits."""
    for share, size, count in SHARES:
        assert codec_of(f"topk:{share}").layout(size)["values"] == ((count,), "float32")
        assert codec_of(f"randk:{share}").layout(size)["values"] == ((count,), "float32")


def test_qsgd_with_feedback_is_a_contraction_by_hand():
    """The norm is 4 and the value its seventh level; 1 + min(512 / 49, sqrt(512) / 7) = 4.2325 divides it."""
    np.testing.assert_allclose(
        through("qsgd:4", np.array([0, -4, 0], np.float32), "on"), [0, -0.945066, 0], rtol=1e-5
    )
    with_two = through("qsgd:2", np.array([0, -4, 0], np.float32), "on")  # 1 + min(512, sqrt(512)) = 23.627
    np.testing.assert_allclose(with_two, [0, -0.169295, 0], rtol=1e-5)


@pytest.mark.parametrize("text", ["qsgd:2", "qsgd:4", "randk:0.4"])
def test_unbiased_codecs_send_all_with_feedback_in_time(text):
    """Of one and the same update each time; the residual stays bounded, so its share of the sum vanishes."""
    rng, codec, start = np.random.default_rng(0), codec_of(text, "on"), {"w": np.zeros(5, np.float32)}
    residual, sent = {}, 0
    for _ in range(400):
        _, given_, residual = compressed(codec, start, {"w": VECTOR}, residual, rng)
        sent = sent + given_["w"]
    np.testing.assert_allclose(sent / 400, VECTOR, atol=0.3)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("text", ["randk:0.4", "qsgd:2", "qsgd:4"])
def test_the_mean_of_many_is_the_vector(text):
    """The deviation of a mean of 2000 is at most 5 / sqrt(2000) = 0.11; it is within four of them."""
    mean = np.mean([through(text, VECTOR, seed=seed) for seed in range(2000)], axis=0)
    np.testing.assert_allclose(mean, VECTOR, atol=0.45)


@pytest.mark.parametrize(
    ("share", "size", "sent"),
    [("0.3", 5, 2), ("0.4", 5, 2), ("0.01", 7, 1), ("0.999", 1000, 999), ("1", 3, 3)],
)
def test_a_random_share_is_scaled_by_how_many_are_sent(share, size, sent):
    """ceil(SHARE d) of d values, times d / ceil(SHARE d): 1/SHARE would be biased where it is rounded up."""
    found = through(f"randk:{share}", np.ones(size, np.float32), seed=1)
    assert sorted(set(found[found != 0].tolist())) == [pytest.approx(size / sent)]
    assert np.count_nonzero(found) == sent


values = st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=40)


@settings(max_examples=50, deadline=None)
@given(values, st.sampled_from(["topk:0.2", "randk:0.2", "bf16", "sign", "lowrank:2"]))
def test_what_is_lost_is_no_longer_than_the_vector(vector, text):
    vector = np.array(vector, np.float32)
    lost = np.linalg.norm(vector - through(text, vector, "on"))
    share = 0.2 if text == "topk:0.2" else 0
    assert lost**2 <= (1 - share) * np.linalg.norm(vector) ** 2 * (1 + 1e-5) + 1e-30


def test_a_sign_loses_what_equation_and_norms_say():
    """``norm(x - C(x))^2 = norm(x)^2 - norm(x, 1)^2 / d`` of each array, here of 4 and of 6 values."""
    vector = np.random.default_rng(0).normal(size=10).astype(np.float32)
    codec = codec_of("sign").of_shapes([(2, 2), (6,)])
    codes = codec.encode(vector, None)
    lost = vector - codec.decode(codes, 10)
    for part in (slice(4), slice(4, 10)):
        x = vector[part].astype(np.float64)
        expected = x @ x - np.abs(x).sum() ** 2 / x.size
        np.testing.assert_allclose(lost[part] @ lost[part], expected, rtol=1e-5)
    assert {name: code.nbytes for name, code in codes.items()} == {"scales": 8, "signs": 2}


SHAPES = ((6, 5), (3,), (4, 2, 3), (2, 2))


def low_rank(arrays, rank):
    """What ``lowrank`` makes of arrays, and the numbers that travel."""
    codec = codec_of(f"lowrank:{rank}").of_shapes(array.shape for array in arrays)
    vector = np.concatenate([array.reshape(-1) for array in arrays]).astype(np.float32)
    codes = codec.encode(vector, np.random.default_rng(0))
    assert {name: (c.shape, c.dtype.name) for name, c in codes.items()} == codec.layout(vector.size)
    parts = np.split(codec.decode(codes, vector.size), np.cumsum([array.size for array in arrays])[:-1])
    shaped = [part.reshape(array.shape) for part, array in zip(parts, arrays, strict=True)]
    return shaped, {name: code.size for name, code in codes.items()}


@pytest.mark.parametrize("of_rank", [0, 1, 2])
def test_matrices_of_at_most_the_rank_and_vectors_are_kept(of_rank):
    """The kernel (4, 2, 3) is a matrix (4, 6); P and Q of rank 2 would be larger than (2, 2)."""
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=shape) for shape in SHAPES]
    for place, (rows, columns) in {0: (6, 5), 2: (4, 6)}.items():
        product = rng.normal(size=(rows, of_rank)) @ rng.normal(size=(of_rank, columns))
        arrays[place] = product.reshape(SHAPES[place])
    found, sizes = low_rank(arrays, 2)
    for array, given_ in zip(found, arrays, strict=True):
        np.testing.assert_allclose(array, given_, atol=1e-5)
    assert sizes == {"p": 2 * (6 + 4), "q": 2 * (5 + 6), "rest": 3 + 4}
    assert low_rank([rng.normal(size=(2, 2))], 1)[1]["rest"] == 4  # P and Q of rank 1 would be as large


def test_of_other_matrices_a_projection_is_kept():
    """What is lost is at right angles to what is kept, and no less than what the best of this rank loses."""
    m = np.random.default_rng(2).normal(size=(12, 9)).astype(np.float32)
    (kept,), _ = low_rank([m], 3)
    lost, singular = m - kept, np.linalg.svd(m, compute_uv=False)
    assert np.linalg.matrix_rank(kept, tol=1e-4) == 3
    assert abs((kept * lost).sum()) < 1e-4
    assert (singular[3:] ** 2).sum() <= (lost**2).sum() < (singular**2).sum()


@pytest.mark.parametrize("text", ["topk:0.2", "sign", "lowrank:1"])
def test_what_was_sent_and_the_residual_are_the_sum_of_the_updates(text):
    rng = np.random.default_rng(0)
    codec, residual, sent, total = codec_of(text), {}, 0, 0
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


MALFORMED = [
    {"indices": np.array([1, 5], np.uint32)},
    {"indices": np.array([1, 1], np.uint32)},
    {"indices": np.array([1], np.uint32)},
    {"indices": np.array([1, 3], np.int64)},
    {"values": np.array([1, np.nan], np.float32)},
    {"values": None},
    {"more": np.zeros(1)},
]


def test_malformed_codes_are_refused():
    for changes in MALFORMED:
        with pytest.raises(ValueError, match=r"indices|values|has "):
            topk_answer(**changes)


def test_a_code_is_refused_from_its_bound_on():
    """Of four bits, 14 is the greatest of 2 x 7 levels, and 7 is 0."""

    def decoded(name, code, scale):
        names = {"qsgd:4": ("norms", "codes"), "sign": ("scales", "signs")}[name]
        codes = dict(zip(names, (np.float32([scale]), np.uint8([code << 4])), strict=True))
        return codec_of(name).of_shapes([(1,)]).decode(codes, 1).tolist()

    assert [decoded("qsgd:4", code, 3) for code in (14, 7, 0)] == [[3], [0], [-3]]
    assert decoded("qsgd:4", 14, 0) == decoded("sign", 8, 0) == [0]
    for wrong in (("qsgd:4", 15, 3), ("qsgd:4", 14, -1), ("sign", 8, -1)):
        with pytest.raises(ValueError, match="a code above the levels, or a norm|a scale below 0"):
            decoded(*wrong)
    for text in ("topk:0", "randk:1.01", "topk:-1", "topk:nan", "lowrank:0", "lowrank:1.0"):
        with pytest.raises(ValueError, match=r"SHARE, with a share in \(0, 1\]|RANK, with a rank >= 1"):
            codec_of(text)


EACH = ("topk:0.1", "randk:0.1", "qsgd:4", "bf16", "sign", "lowrank:2")


def test_feedback_is_as_the_codec_needs_it():
    needing = {text for text in EACH if codec_of(text).feedback}
    assert needing == {"topk:0.1", "sign", "lowrank:2"}
    assert [text.partition(":")[0] for text in EACH] == list(CODECS)
