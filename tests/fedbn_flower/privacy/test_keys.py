"""A run's key: where it is, who can read it, and the numbers that derive from it."""

import hashlib
import hmac
import stat

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from scipy.stats import kstest

from fedbn_flower.core.errors import UserError
from fedbn_flower.privacy.keys import NAME, Key

SECRET = bytes(range(32))


def test_the_numbers_are_the_keystream_that_the_docstring_names():
    """HKDF by hand (RFC 5869): extract with 32 zero bytes, expand with one block."""
    extracted = hmac.new(bytes(32), SECRET, hashlib.sha256).digest()
    derived = hmac.new(extracted, b"fedbn-flower noise 3 2\x01", hashlib.sha256).digest()
    stream = Cipher(algorithms.ChaCha20(derived, bytes(16)), None).encryptor().update(bytes(80))
    words = [int.from_bytes(stream[i : i + 8], "little") for i in range(0, 80, 8)]
    found = Key(SECRET).numbers(3, 2, "noise").uniform(10)
    assert found.tolist() == [(word >> 11) / 2**53 for word in words]


def test_another_round_attempt_purpose_or_key_gives_other_numbers():
    def first(key, *where):
        return float(key.numbers(*where).uniform(1)[0])

    key = Key(SECRET)
    places = [(1, 1, "noise"), (2, 1, "noise"), (1, 2, "noise"), (1, 1, "sampling"), (11, 1, "noise")]
    assert len({first(key, *place) for place in places}) == len(places)
    keys = [key, Key(), Key(), Key.of_seed(0), Key.of_seed(1)]
    assert len({first(one, 1, 1, "noise") for one in keys}) == len(keys)
    assert first(Key.of_seed(7), 1, 1, "noise") == first(Key.of_seed(7), 1, 1, "noise")


def test_normal_numbers_are_normal():
    found = Key(SECRET).numbers(1, 1, "noise").normal(100_001)
    assert found.shape == (100_001,)
    assert kstest(found, "norm").pvalue > 0.01
    halves = np.array_split(found[:-1], 2)
    assert abs(np.corrcoef(*halves)[0, 1]) < 0.01


@pytest.mark.parametrize("size", [1, 2**15, 2**15 + 1, 10**5])
def test_noise_is_added_in_place_to_every_entry(size):
    vector = np.full(size, 3, np.float32)
    Key(SECRET).numbers(1, 1, "noise").add_noise(vector, 0.5)
    assert vector.dtype == np.float32
    assert (vector != 3).all()
    if size > 1000:
        assert (vector.mean(), vector.std()) == (pytest.approx(3, abs=0.01), pytest.approx(0.5, rel=0.01))


def test_a_saved_key_is_its_owners_alone(tmp_path):
    key = Key()
    key.save(tmp_path / "checkpoint")
    (path,) = (tmp_path / "checkpoint").iterdir()
    assert path.name == NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    loaded = Key.load(tmp_path / "checkpoint")
    assert loaded.numbers(1, 1, "noise").uniform(3).tolist() == key.numbers(1, 1, "noise").uniform(3).tolist()
    assert Key.load(tmp_path) is None
    assert path.read_text().strip() not in repr(key) + str(vars(key).keys())


@pytest.mark.parametrize("content", [b"", b"00", b"zz" * 32, b"\xff" * 64])
def test_what_is_no_key_is_refused(content, tmp_path):
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(UserError, match=r"resume: .*privacy\.key.* is not a key of 32 bytes"):
        Key.load(tmp_path)


def test_no_two_sums_have_the_same_noise_but_under_a_public_key():
    """The mark is a function of the sum, its count and the key, and tells nothing of them."""
    one, other = np.arange(4.0), np.array([0, 1, 2, 3 + 1e-12])

    def noise(key, total, within):
        return key.numbers(3, 1, "noise", key.mark_of(total, within)).uniform(2).tolist()

    places = [(Key(SECRET), one, 0.5), (Key(SECRET), other, 0.5), (Key(SECRET), one, 1.5), (Key(), one, 0.5)]
    assert len({tuple(noise(*place)) for place in places}) == 4
    assert noise(*places[0]) == noise(*places[0])
    assert len({Key(SECRET).mark_of(one, 0.5), Key().mark_of(one, 0.5)}) == 2
    public = [(Key.of_seed(1), one, 0.5), (Key.of_seed(1), other, 1.5)]
    assert noise(*public[0]) == noise(*public[1])
    assert noise(*public[0]) == Key.of_seed(1).numbers(3, 1, "noise").uniform(2).tolist()
    assert Key.of_seed(1).of_client(2).mark_of(one, 0.5) == ""


def test_a_destroyed_key_is_overwritten_and_gone(tmp_path):
    Key().save(tmp_path)
    path = tmp_path / NAME
    with path.open("rb") as before:  # what is left on the disk
        assert len(before.read()) == 65
        Key.destroy(tmp_path)
        before.seek(0)
        assert before.read() == bytes(65)
    assert not path.exists()
    Key.destroy(tmp_path)
