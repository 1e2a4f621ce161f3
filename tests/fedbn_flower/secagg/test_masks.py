"""Masks: known answers, two clients by hand, and that they cancel whoever drops out."""

import hashlib
import hmac
import pickle
import secrets

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbn_flower.secagg import cryptography as module
from fedbn_flower.secagg.cryptography import KeyPair, agree, expand, mask, remove
from fedbn_flower.secagg.graph import neighbours

# RFC 7748, section 6.1: Bob's keys, Alice's public one, and their shared secret.
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
BOB_PUBLIC = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
ALICE_PUBLIC = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
TOGETHER = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")

# RFC 8439, appendix A.1, vectors 1 and 2: key 0, nonce 0, blocks 0 and 1; vector 3: key 1, block 1.
KEYSTREAM = bytes.fromhex(
    "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
    "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
)
KEYSTREAM_1 = bytes.fromhex(
    "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
    "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0"
)


def hkdf(secret, info):
    """RFC 5869 with SHA-256 and no salt, for 32 bytes."""
    extracted = hmac.digest(bytes(32), secret, hashlib.sha256)
    return hmac.digest(extracted, info + b"\1", hashlib.sha256)


def test_keys_are_those_of_rfc_7748():
    bob = KeyPair.of(BOB)
    assert (bob.public, bob.private_bytes()) == (BOB_PUBLIC, BOB)
    assert bob.exchange(ALICE_PUBLIC) == TOGETHER
    info = b"fedbn-flower secagg " + ALICE_PUBLIC + BOB_PUBLIC + b"round 1"
    assert agree(bob, ALICE_PUBLIC, b"round 1") == hkdf(TOGETHER, info)


def test_both_agree_and_nobody_else():
    one, other, third = KeyPair.new(), KeyPair.new(), KeyPair.new()
    assert agree(one, other.public, b"1") == agree(other, one.public, b"1")
    found = {agree(pair, public, context) for pair, public, context in (
        (one, other.public, b"1"), (one, other.public, b"2"), (third, other.public, b"1"),
        (third, one.public, b"1"),
    )}  # fmt: skip
    assert len(found) == 4
    assert all(len(seed) == 32 for seed in found)


@pytest.mark.parametrize("public", [bytes(31), bytes(32), bytes([1, *bytes(31)])])
def test_a_public_key_on_which_everybody_would_agree_is_refused(public):
    with pytest.raises(ValueError, match=r"32 bytes|shared key"):
        agree(KeyPair.new(), public, b"")


def test_a_pair_shows_and_pickles_nothing_private():
    pair = KeyPair.of(BOB)
    assert repr(pair) == f"KeyPair(public={BOB_PUBLIC.hex()})"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(pair)


@pytest.mark.parametrize(("bits", "word"), [(32, "<u4"), (64, "<u8")])
def test_the_keystream_is_that_of_rfc_8439(bits, word):
    found = expand(bytes(32), 1024 // bits, bits)
    assert found.dtype.kind + str(found.dtype.itemsize * 8) == f"u{bits}"
    assert found.tolist() == np.frombuffer(KEYSTREAM, word).tolist()
    second = expand(bytes(31) + b"\1", 1024 // bits, bits)[512 // bits :]
    assert second.tolist() == np.frombuffer(KEYSTREAM_1, word).tolist()


@pytest.mark.parametrize("bits", [32, 64])
def test_a_long_keystream_begins_with_a_short_one(bits):
    seed = secrets.token_bytes(32)
    long = expand(seed, 3 * module.BLOCK // 4 + 5, bits)
    assert long[:100].tolist() == expand(seed, 100, bits).tolist()
    assert len(np.unique(long)) > 0.999 * long.size
    assert expand(seed, 0, bits).size == 0


def test_other_bits_and_seeds_are_refused():
    with pytest.raises(ValueError, match="32 or 64"):
        expand(bytes(32), 1, 16)
    with pytest.raises(ValueError, match="key"):
        expand(bytes(31), 1, 32)


def test_two_clients_by_hand():
    b1, b2, s = (secrets.token_bytes(32) for _ in range(3))
    q1, q2 = [1, 2**32 - 1, 7], [5, 3, 2**32 - 7]
    y1 = mask(np.array(q1, np.uint32), b1, {2: s}, 1)
    y2 = mask(np.array(q2, np.uint32), b2, {1: s}, 2)
    p1, p2, p = ([int(x) for x in expand(seed, 3, 32)] for seed in (b1, b2, s))
    assert y1.tolist() == [(q + b - m) % 2**32 for q, b, m in zip(q1, p1, p, strict=True)]
    assert y2.tolist() == [(q + b + m) % 2**32 for q, b, m in zip(q2, p2, p, strict=True)]
    assert remove(y1 + y2, [b1, b2]).tolist() == [6, 2, 0]
    assert remove(y2, [b2], [(2, 1, s)]).tolist() == q2
    assert remove(y1, [b1], [(1, 2, s)]).tolist() == q1


class Federation:
    """Clients with seeds, as if every exchange but that of vectors had taken place."""

    def __init__(self, members, k, seed=0):
        self.graph = neighbours(members, k, seed)
        self.selves = {me: secrets.token_bytes(32) for me in members}
        pairs = {frozenset((me, v)) for me, others in self.graph.items() for v in others}
        self.seeds = {pair: secrets.token_bytes(32) for pair in pairs}

    def seed(self, me, other):
        return self.seeds[frozenset((me, other))]

    def masked(self, me, vector):
        return mask(vector, self.selves[me], {v: self.seed(me, v) for v in self.graph[me]}, me)

    def unmasked(self, total, survivors):
        dropped = [
            (me, v, self.seed(me, v)) for me in survivors for v in self.graph[me] if v not in survivors
        ]
        return remove(total, [self.selves[me] for me in survivors], dropped)


def vector_of(rng, dtype, shape):
    return rng.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


@settings(max_examples=25, deadline=None)
@given(
    members=st.lists(st.integers(-5, 10**9), min_size=1, max_size=12, unique=True),
    k=st.integers(1, 12),
    dtype=st.sampled_from([np.uint32, np.uint64]),
    shape=st.sampled_from([(0,), (1,), (3, 4), (2, 1, 5), (module.BLOCK // 4 + 3,)]),
    data=st.data(),
)
def test_the_masked_sum_is_the_plain_sum_bit_for_bit(members, k, dtype, shape, data):
    survivors = data.draw(st.lists(st.sampled_from(members), min_size=1, unique=True))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    federation = Federation(members, k, seed=len(members))
    vectors = {me: vector_of(rng, dtype, shape) for me in members}
    before = {me: vector.copy() for me, vector in vectors.items()}
    sent = {me: federation.masked(me, vectors[me]) for me in members}
    total = np.zeros(shape, dtype)
    for me in survivors:
        total += sent[me]
    found = federation.unmasked(total, survivors)
    assert (found.dtype, found.shape) == (dtype, shape)
    assert all(np.array_equal(vectors[me], before[me]) for me in members)
    expected = np.zeros(shape, dtype)
    for me in survivors:
        expected += vectors[me]
    assert np.array_equal(found, expected)


def test_a_vector_that_is_not_contiguous_is_masked_like_its_copy():
    federation = Federation(range(2), 1)
    vector = vector_of(np.random.default_rng(0), np.uint32, (6, 8))
    assert np.array_equal(federation.masked(0, vector.T), federation.masked(0, vector.T.copy()))


def test_seeds_that_would_take_each_other_off_are_refused():
    one, other = secrets.token_bytes(32), secrets.token_bytes(32)
    for self_seed, pairs, me in ((one, {1: one}, 0), (one, {1: other, 2: other}, 0), (one, {0: other}, 0)):
        with pytest.raises(ValueError, match="once"):
            mask(np.zeros(3, np.uint32), self_seed, pairs, me)
