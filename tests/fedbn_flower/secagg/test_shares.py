"""Secrets that are shared out, false shares, and letters that only the addressee opens."""

import hashlib
import secrets

import pytest
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbn_flower.secagg.cryptography import (
    KeyPair,
    Tampered,
    commitment,
    digest_of,
    join,
    open_sealed,
    seal,
    split,
)


@settings(max_examples=40, deadline=None)
@given(
    holders=st.lists(st.integers(-1, 10**9), min_size=1, max_size=12, unique=True),
    halves=st.integers(1, 3),
    data=st.data(),
)
def test_any_threshold_of_shares_gives_the_secret(holders, halves, data):
    threshold = data.draw(st.integers(1, len(holders)))
    secret = secrets.token_bytes(16 * halves)
    shares = split(secret, threshold, holders)
    assert list(shares) == holders
    assert {len(share) for share in shares.values()} == {len(secret) + 4}
    present = data.draw(st.lists(st.sampled_from(holders), min_size=threshold, unique=True))
    kept = {holder: shares[holder] for holder in present}
    assert join(kept, threshold, digest=digest_of(secret)) == secret


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2**32 - 1), st.binary(min_size=32, max_size=32)),
        min_size=1,
        max_size=12,
        unique_by=lambda share: share[0],
    )
)
def test_shares_are_joined_to_the_bits_of_pycryptodome(points):
    """Whatever they are, at any points: of 0 too, which nobody is dealt."""
    halves = (
        Shamir.combine([(index, share[half]) for index, share in points])
        for half in (slice(16), slice(16, 32))
    )
    secret = b"".join(halves)
    shares = {holder: index.to_bytes(4, "big") + share for holder, (index, share) in enumerate(points)}
    assert join(shares, len(points), digest=digest_of(secret)) == secret


def test_a_mask_key_is_known_by_its_public_key():
    pair = KeyPair.new()
    shares = split(pair.private_bytes(), 2, [4, 5, 6])
    assert join(shares, 2, public=pair.public) == pair.private_bytes()
    with pytest.raises(Tampered, match=pair.public.hex()[:16]):
        join(split(KeyPair.new().private_bytes(), 2, [4, 5, 6]), 2, public=pair.public)


def test_fewer_shares_than_the_threshold_say_nothing():
    secret = secrets.token_bytes(32)
    shares = split(secret, 3, range(5))
    few = {holder: shares[holder] for holder in (0, 1)}
    with pytest.raises(ValueError, match="2 shares: 3 are needed"):
        join(few, 3, digest=digest_of(secret))
    with pytest.raises(Tampered):  # nor does a polynomial of a lower degree go through them
        join(few, 2, digest=digest_of(secret))


def test_shares_of_one_holder_are_uniform():
    """Those of one secret differ each time, bit by bit like coins."""
    ones = [0] * 128
    for _ in range(400):
        share = int.from_bytes(split(bytes(16), 2, [0, 1])[0][4:], "big")
        ones = [count + (share >> bit & 1) for bit, count in enumerate(ones)]
    assert all(150 < count < 250 for count in ones)


def flipped(data, byte=-1):
    changed = bytearray(data)
    changed[byte] ^= 1
    return bytes(changed)


LIES = [
    flipped,
    lambda share: flipped(share, 3),  # at another point
    lambda share: share[:-1],
    lambda share: share[:-16],
    lambda share: b"",
    lambda share: bytes(len(share)),
    lambda share: share + bytes(16),
]


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 15), st.data())
def test_a_share_that_was_not_dealt_is_known_and_the_others_give_the_secret(holders, data):
    """Whoever lies, and however many: as long as a threshold of shares is right. A copy is a lie too."""
    threshold = data.draw(st.integers(1, holders))
    secret = secrets.token_bytes(32)
    dealt = split(secret, threshold, range(holders))
    told = dict(dealt)
    liars = data.draw(st.sets(st.integers(0, holders - 1), max_size=holders - threshold))
    for liar in liars:
        lie = data.draw(st.sampled_from([*LIES, None]))
        told[liar] = lie(dealt[liar]) if lie else dealt[(liar + 1) % holders]
    commitments = {holder: commitment(share) for holder, share in dealt.items()}
    right = {holder: share for holder, share in told.items() if commitment(share) == commitments[holder]}
    assert right.keys() == dealt.keys() - liars
    assert join(right, threshold, digest=digest_of(secret)) == secret


def test_a_commitment_is_a_digest_that_is_no_seeds():
    assert (
        commitment(bytes(36)).hex()
        == (hashlib.sha256(b"fedbn-flower secagg share" + bytes(36)).hexdigest()[:32])
    )
    assert commitment(bytes(32)) != digest_of(bytes(32))[:16]


@pytest.mark.parametrize("lie", LIES)
def test_shares_that_were_dealt_falsely_give_nothing(lie):
    secret = secrets.token_bytes(32)
    dealt = split(secret, 3, [10, 11, 14])
    with pytest.raises(Tampered, match="its shares do not give the seed of digest"):
        join({**dealt, 11: lie(dealt[11])}, 3, digest=digest_of(secret))
    with pytest.raises(Tampered):
        join({**dealt, 11: dealt[10]}, 3, digest=digest_of(secret))


def test_the_shares_of_another_secret_are_told():
    seed, key = secrets.token_bytes(32), KeyPair.new()
    swapped = split(key.private_bytes(), 2, range(3))
    with pytest.raises(Tampered, match=digest_of(seed).hex()[:16]):
        join(swapped, 2, digest=digest_of(seed))


@pytest.mark.parametrize(
    ("secret", "threshold", "holders"),
    [(bytes(16), 0, [1]), (bytes(16), 3, [1, 2]), (bytes(16), 1, [1, 1]), (bytes(15), 1, [1]), (b"", 1, [1])],
)
def test_what_cannot_be_shared_out_is_refused(secret, threshold, holders):
    with pytest.raises(ValueError, match="must be"):
        split(secret, threshold, holders)


def test_a_letter_opens_for_its_addressee_with_what_goes_with_it():
    key = secrets.token_bytes(32)
    sealed = seal(key, b"two shares", b"round 3, from 1 to 2")
    assert open_sealed(key, sealed, b"round 3, from 1 to 2") == b"two shares"
    assert b"two shares" not in sealed
    assert sealed != seal(key, b"two shares", b"round 3, from 1 to 2")


# RFC 8439, section 2.8.2.
KEY = bytes(range(0x80, 0xA0))
LETTER_NONCE = bytes.fromhex("070000004041424344454647")
BESIDE = bytes.fromhex("50515253c0c1c2c3c4c5c6c7")
TEXT = (
    b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen "
    b"would be it."
)
BEGINNING = bytes.fromhex("d31a8d34648e60db7b86afbc53ef7ec2")
TAG = bytes.fromhex("1ae10b594f09e26a7e902ecbd0600691")


def test_letters_are_those_of_rfc_8439():
    whole = ChaCha20Poly1305(KEY).encrypt(LETTER_NONCE, TEXT, BESIDE)
    assert (whole[:16], whole[-16:]) == (BEGINNING, TAG)
    assert open_sealed(KEY, LETTER_NONCE + whole, BESIDE) == TEXT


@pytest.mark.parametrize(
    "change",
    [
        lambda sealed: (sealed, b"other"),  # swapped, or of another round
        lambda sealed: (sealed[:-1], b"with"),
        lambda sealed: (sealed[:5], b"with"),
        lambda sealed: (b"", b"with"),
        lambda sealed: (flipped(sealed), b"with"),
        lambda sealed: (flipped(sealed, 0), b"with"),
        lambda sealed: (flipped(sealed, 14), b"with"),
        lambda sealed: (sealed + b"x", b"with"),
    ],
)
def test_another_letter_does_not_open(change):
    key = secrets.token_bytes(32)
    sealed, beside = change(seal(key, b"a share", b"with"))
    with pytest.raises(Tampered):
        open_sealed(key, sealed, beside)
    with pytest.raises(Tampered):  # of another's key
        open_sealed(secrets.token_bytes(32), seal(key, b"a share", b"with"), b"with")
