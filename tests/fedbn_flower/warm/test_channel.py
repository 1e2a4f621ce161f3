"""Packets between two processes: whole, bounded, from who knows the secret."""

import hashlib
import hmac
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbn_flower.warm import channel as channels
from fedbn_flower.warm.channel import HEAD, HELLO, LENGTH, Channel, InvalidPacket

SECRET = b"s" * 32


@pytest.fixture
def pair():
    """A channel, and the bare socket at its other end."""
    ours, theirs = socket.socketpair()
    with Channel(ours, 0.5) as channel, theirs:
        theirs.settimeout(5)
        yield channel, theirs


@pytest.fixture
def both():
    """Two channels that are connected."""
    left, right = socket.socketpair()
    with Channel(left, 5) as one, Channel(right, 5) as other:
        yield one, other


def at_once(*calls):
    """What calls return or raise that wait for each other."""
    with ThreadPoolExecutor(len(calls)) as threads:
        done = [threads.submit(call, *arguments) for call, *arguments in calls]
        return [one.exception() or one.result() for one in done]


@given(st.binary(min_size=1, max_size=1), st.lists(st.binary(max_size=200_000), max_size=5))
def test_a_packet_arrives_as_it_was_sent(kind, parts):
    left, right = socket.socketpair()
    with Channel(left, 5) as one, Channel(right, 5) as other:
        assert at_once((one.send, kind, parts), (other.receive,))[1] == (kind, parts)


def test_nothing_is_sent_after_the_last_byte(both):
    """Else a peer that has read a packet and closes would break the sender."""
    one, other = both
    one.send(b"R", [b"x", b""])
    assert other.receive() == (b"R", [b"x", b""])


def test_a_packet_that_is_cut_off_is_an_error(pair):
    channel, other = pair
    other.sendall(HEAD.pack(b"R", 1) + LENGTH.pack(10) + b"only")
    other.close()
    with pytest.raises(ConnectionResetError, match="closed"):
        channel.receive()


@pytest.mark.parametrize(
    ("packet", "words"),
    [
        (HEAD.pack(b"R", channels.MOST_PARTS + 1), "parts, more than 1048576"),
        (HEAD.pack(b"R", 2) + LENGTH.pack(3) + LENGTH.pack(2**63), "9223372036854775808 bytes, more than"),
    ],
)
def test_a_packet_that_is_too_large_is_refused_before_memory_is_taken(pair, packet, words):
    channel, other = pair
    other.sendall(packet)
    with pytest.raises(InvalidPacket, match=words):
        channel.receive()


def test_a_peer_that_is_silent_counts_as_hung():
    ours, theirs = socket.socketpair()
    with Channel(ours, 0.02) as channel, theirs, pytest.raises(TimeoutError):
        channel.receive()


@pytest.mark.slow
def test_a_peer_that_takes_nothing_counts_as_hung(pair):
    channel, _ = pair
    with pytest.raises(TimeoutError):
        channel.send(b"R", [bytes(10**8)])


def test_an_end_is_seen_only_when_it_is_there(pair):
    channel, other = pair
    assert not channel.has_ended()
    other.close()
    assert channel.has_ended()


def test_who_knows_the_secret_is_admitted(both):
    one, other = both
    assert at_once((channels.prove_to_worker, one, SECRET), (channels.admit, other, SECRET)) == [None, None]


def test_another_secret_is_refused_by_both(both):
    one, other = both
    calls = (channels.prove_to_worker, one, SECRET), (channels.admit, other, b"o" * 32)
    with one, ThreadPoolExecutor() as threads:
        first, second = (threads.submit(call, *arguments) for call, *arguments in calls)
        with pytest.raises(InvalidPacket, match="another secret"):
            first.result()
        one.__exit__()
        with pytest.raises(ConnectionError):
            second.result()


def test_a_door_with_another_secret_is_refused(pair):
    """One that does not look at the worker's proof, and answers with its own."""
    channel, other = pair
    with ThreadPoolExecutor() as threads, Channel(other, 5) as stranger:
        admitted = threads.submit(channels.admit, channel, SECRET)
        stranger.send(HELLO, [b"n" * 32])
        _, (nonce, proof) = stranger.receive()
        assert proof == hmac.new(SECRET, b"worker" + b"n" * 32 + nonce, hashlib.sha256).digest()
        stranger.send(channels.PROVEN, [proof])  # the worker's own, sent back
        with pytest.raises(InvalidPacket, match="another secret"):
            admitted.result()


def test_the_proof_of_a_door(pair):
    channel, other = pair
    with ThreadPoolExecutor() as threads, Channel(other, 5) as door:
        admitted = threads.submit(channels.admit, channel, SECRET)
        door.send(HELLO, [b"n" * 32])
        _, (nonce, _) = door.receive()
        door.send(channels.PROVEN, [hmac.new(SECRET, b"door" + nonce + b"n" * 32, hashlib.sha256).digest()])
        assert admitted.result() is None


@pytest.mark.parametrize("greeting", [(b"X", [b"n" * 32]), (HELLO, [b"n" * 31]), (HELLO, [])])
def test_what_is_not_a_greeting_is_refused(both, greeting):
    one, other = both
    one.send(*greeting)
    with pytest.raises(InvalidPacket):
        channels.admit(other, SECRET)
