"""What a client does in a session of secure aggregation: it shares out its secrets, masks, and helps unmask.

Its secrets are in the node's memory between the messages of a session, in the ``Context.state`` that Flower
keeps in RAM, and nowhere else. A session is answered once: keys are for one sharing, a mask is for one
vector, and with the first request to unmask all secrets of a session are forgotten, whatever comes of it. So
no server gets two vectors under one mask, or both secrets of a neighbour.

What a node answers to the steps of secure aggregation.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from numpy.typing import NDArray

from fedbn_flower.strategies.messages.gate import record_of
from fedbn_flower.strategies.messages.npy import encoded, viewed

from ..core.ground.wire import COMPRESSED, CONFIG, SERVER_ROUND
from ..core.text import are, number_of
from ..extensions.at_site import AtClient
from ..privacy.floors import SECAGG_PARTNERS, Refused
from ..privacy.private_run import PrivateRun
from . import words
from .conflicts import ON
from .cryptography import (
    DIGEST,
    LENGTH,
    KeyPair,
    Tampered,
    agree,
    commitment,
    digest_of,
    mask,
    open_sealed,
    seal,
    split,
)
from .private import least_at_client
from .signatures import FRESH, NUMBER, WHO, Signer, digest_of_heard, statement_of

NEXT, SESSION, TAKEN = "secagg-next", "secagg-session", "secagg-taken"
"""Entries of a node's state: the keys of the next session, the secrets of the current one, and whose signed
keys have been taken, with the round."""
SHARE_LENGTH = 4 + LENGTH


@dataclass(frozen=True)
class Secrets:
    """What a client has to itself in a session. It is not shown.

    Parameters
    ----------
    tag : str
        The session.
    me : int
        The client's number in it.
    mask_key, letter_key : bytes
        Private keys: with the first it agrees on masks with its neighbours, with the second on keys to
        letters.
    seed : bytes
        Of its own mask.
    own_share : bytes
        Its share of this seed.
    neighbours : tuple[int, ...]
        Their numbers; once the vector is masked, of those with whom it is.
    publics : bytes
        Their public keys, 64 bytes each.
    threshold, least : int
        How many shares give a secret, and of how many clients a sum is at least.
    masked : bool
        Whether the vector is masked.
    signers : bytes
        Fingerprints of whose keys those of the neighbours are, 32 bytes each; empty where sites do not sign.
    told, heard, signed : bytes
        Digests of what it was told of the sum's clients, of its model, and of what it has signed.
    """

    tag: str
    me: int
    mask_key: bytes
    letter_key: bytes
    seed: bytes
    own_share: bytes
    neighbours: tuple[int, ...]
    publics: bytes
    threshold: int
    least: int
    masked: bool = False
    signers: bytes = b""
    told: bytes = b""
    heard: bytes = b""
    signed: bytes = b""

    def __repr__(self) -> str:
        return f"Secrets(tag={self.tag!r}, me={self.me})"

    def public_of(self, place: int, letters: bool) -> bytes:
        """Return a public key of the neighbour at this place."""
        start = 2 * LENGTH * place + LENGTH * letters
        return self.publics[start : start + LENGTH]

    def letter_key_with(self, place: int) -> bytes:
        """Return the key to letters with the neighbour at this place."""
        pair = KeyPair.of(self.letter_key)
        return agree(pair, self.public_of(place, letters=True), f"letters {self.tag}".encode())

    def mask_seed_with(self, place: int) -> bytes:
        """Return the seed of the mask that it has in common with the neighbour at this place."""
        context = context_of_mask(self.tag, self.heard)
        return agree(KeyPair.of(self.mask_key), self.public_of(place, letters=False), context)

    def record(self) -> ConfigRecord:
        """Return it as an entry of the node's state."""
        values = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(self).items()}
        return ConfigRecord(values)

    @classmethod
    def of(cls, state: RecordDict, tag: object) -> Secrets:
        """Return those of a session.

        Raises
        ------
        Refused
            When there are none: the client has restarted, or has forgotten them after it helped to unmask.
        """
        found = state.get(SESSION)
        if not isinstance(found, ConfigRecord) or found["tag"] != tag:
            raise Refused("secagg: this client has no part in this session, or not any more")
        values = {name: tuple(v) if isinstance(v, list) else v for name, v in found.items()}
        return cls(**values)  # type: ignore[arg-type]


def context_of_mask(tag: str, heard: bytes = b"") -> bytes:
    """Return what the masks of a session are agreed on for; ``heard`` where sites sign."""
    return f"mask {tag}".encode() + heard


def associated(tag: str, sender: int, addressee: int) -> bytes:
    """Return what a letter is bound to."""
    return hashlib.sha256(f"{tag} {sender} {addressee}".encode()).digest()


def advertised(state: RecordDict, signer: Signer | None = None) -> dict[str, bytes]:
    """Return what a client says of its next session: the public keys, new ones, of masks and of letters.

    Where it signs, they have a seal, and it says which partners it knows.
    """
    pairs = KeyPair.new(), KeyPair.new()
    state[NEXT] = ConfigRecord({"private": b"".join(pair.private_bytes() for pair in pairs)})
    publics = b"".join(pair.public for pair in pairs)
    if not signer:
        return {words.KEYS: publics}
    known = b"".join(sorted(signer.partners))
    return {words.KEYS: publics + signer.seal(publics), words.PUBLIC: signer.public, words.PARTNERS: known}


def shared_out(
    state: RecordDict, asked: ConfigRecord, least: int, signer: Signer | None = None
) -> ConfigRecord:
    """Begin a session: share out its secrets among the neighbours, in a letter to each.

    Parameters
    ----------
    state : RecordDict
        Of the node.
    asked : ConfigRecord
        What the server says of the session.
    least : int
        Of how many clients a sum is to be at least, for this client.
    signer : Signer, optional
        With a key of its own: then its neighbours are those whose keys it knows.

    Raises
    ------
    Refused
        When it has no keys for a session, the session is one of too few, or a neighbour is not known.
    """
    private = state.pop(NEXT, None)
    state.pop(SESSION, None)
    if not isinstance(private, ConfigRecord):
        raise Refused("secagg: this client has no keys that it has not used")
    tag, me, threshold = str(asked[words.TAG]), _number(asked, words.ME), _number(asked, words.THRESHOLD)
    neighbours, publics = _numbers(asked, words.NEIGHBOURS), _bytes(asked, words.KEYS)
    found, holders = len(neighbours) + 1, [me, *neighbours]
    if len(set(holders)) < found or len(publics) != 2 * LENGTH * len(neighbours):
        raise Refused("secagg: the session's neighbours are not as many as their keys")
    theirs = [publics[start : start + 2 * LENGTH] for start in range(0, len(publics), 2 * LENGTH)]
    if len(set(theirs)) < len(neighbours):
        raise Refused("secagg: two neighbours have the same keys")
    if found < least or not found < 2 * threshold <= 2 * found:
        raise Refused(
            f"secagg: {number_of(found, 'client')} and {number_of(threshold, 'share')} are too few; "
            f"at least {least} clients"
        )
    keys, seed = _bytes(private, "private"), os.urandom(LENGTH)
    of_seed = split(seed, threshold, holders)
    of_key = split(keys[:LENGTH], threshold, holders)
    session = Secrets(
        tag, me, keys[:LENGTH], keys[LENGTH:], seed, of_seed[me], neighbours, publics, threshold, least
    )
    if signer:
        signers = signer.signers(neighbours, theirs, _list_of_bytes(asked, words.SEALS))
        _take(state, theirs, signer.number)
        session = replace(session, signers=signers, told=_told(session, signer.run))
    letters = [
        seal(session.letter_key_with(place), of_seed[other] + of_key[other], associated(tag, me, other))
        for place, other in enumerate(neighbours)
    ]
    state[SESSION] = session.record()
    dealt = [commitment(of_seed[holder]) + commitment(of_key[holder]) for holder in holders]
    return ConfigRecord(
        {words.LETTERS: letters, words.DIGEST: digest_of(seed), words.COMMITMENTS: b"".join(dealt)}
    )


def masked(
    state: RecordDict,
    asked: ConfigRecord,
    vector: NDArray[np.unsignedinteger],
    heard: Callable[[], bytes] = bytes,
) -> NDArray[np.unsignedinteger]:
    """Return a client's vector under its masks, in a session that it has shared its secrets in.

    Parameters
    ----------
    state : RecordDict
        Of the node.
    asked : ConfigRecord
        What the server says of the session.
    vector : NDArray
        Whole numbers.
    heard : callable, optional
        Returns the digest of the model that it got, and of what else it was told, for sites that sign.

    Raises
    ------
    Refused
        When it has no part in the session, has masked a vector already, or too few others have a part in it.
    """
    session = Secrets.of(state, asked.get(words.TAG))
    if session.masked:
        raise Refused("secagg: this client has masked its vector of this session")
    bits = np.unpackbits(np.frombuffer(_bytes(asked, words.PRESENT), np.uint8))
    present = [place for place, other in enumerate(session.neighbours) if other < bits.size and bits[other]]
    if (count := len(present) + 1) < max(session.least, session.threshold):
        too_few = f"{number_of(count, 'client')} {are(count)} too few"
        raise Refused(f"secagg: {too_few}; at least {session.least}")
    session = replace(session, heard=heard() if session.signers else b"")
    seeds = {session.neighbours[place]: session.mask_seed_with(place) for place in present}
    found = mask(vector, session.seed, seeds, session.me)

    def of_present(whole: bytes, size: int) -> bytes:
        return b"".join(whole[size * place : size * (place + 1)] for place in present)

    state[SESSION] = replace(
        session,
        neighbours=tuple(seeds),
        publics=of_present(session.publics, 2 * LENGTH),
        signers=of_present(session.signers, WHO),
        masked=True,
    ).record()
    return found


def heard_in(state: RecordDict, asked: ConfigRecord) -> bytes:
    """Return the digest of what a client was told, which is in its masks; empty where sites do not sign."""
    return Secrets.of(state, asked.get(words.TAG)).heard


def agreed(state: RecordDict, asked: ConfigRecord, signer: Signer) -> ConfigRecord:
    """Return the signature on what this client was told of the sum, with who has answered.

    Raises
    ------
    Refused
        When it has signed already, or as `helped`; it then forgets the session.
    """
    session = Secrets.of(state, asked.get(words.TAG))
    del state[SESSION]
    survivors, gone = _answered(session, asked)
    if session.signed:
        raise Refused("secagg: this client has signed who has answered")
    statement = _statement(session, survivors, gone)
    state[SESSION] = replace(session, signed=statement).record()
    return ConfigRecord({words.SIGNATURE: signer.sign(statement), words.STATEMENT: statement})


def helped(state: RecordDict, asked: ConfigRecord, signer: Signer | None = None) -> ConfigRecord:
    """Return what the server needs of this client to unmask the sum; forget the session.

    Of a neighbour it is one share: of the seed of its mask if it has answered, and else of its mask key.
    A letter that does not open is left out, and so is a share that is not as its owner has said.

    Raises
    ------
    Refused
        When the client has not masked its vector of this session, or has helped before; when too few have
        answered, the server is not consistent, or where sites sign too few have signed the same.
    """
    session = Secrets.of(state, asked.get(words.TAG))
    del state[SESSION]
    survivors, gone = _answered(session, asked)
    letters, dealt = _list_of_bytes(asked, words.LETTERS), asked.get(words.COMMITMENTS)
    if len(letters) != len(session.neighbours):
        raise Refused("secagg: not a letter of each neighbour")
    if not isinstance(dealt, bytes) or len(dealt) != DIGEST * len(letters):
        raise Refused(f"secagg: {words.COMMITMENTS}: not one for each letter; is the server's version older?")
    if session.signers or signer:
        _check_signed(session, survivors, gone, _list_of_bytes(asked, words.SIGNATURES), signer)
    shares = {session.me: session.own_share}
    for place, (other, letter) in enumerate(zip((*survivors, *gone), letters, strict=True)):
        key = session.letter_key_with(session.neighbours.index(other))
        try:
            both = open_sealed(key, letter, associated(session.tag, other, session.me))
        except Tampered:
            continue
        share = both[SHARE_LENGTH:] if other in gone else both[:SHARE_LENGTH]
        if commitment(share) == dealt[DIGEST * place : DIGEST * (place + 1)]:
            shares[other] = share
    return ConfigRecord({words.NEIGHBOURS: list(shares), words.SHARES: list(shares.values())})


def _answered(session: Secrets, asked: ConfigRecord) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return which neighbours have answered, and which have not, as the server says.

    Raises
    ------
    Refused
        When this cannot be, or too few have.
    """
    survivors, gone = _numbers(asked, words.SURVIVORS), _numbers(asked, words.GONE)
    if not session.masked:
        raise Refused("secagg: this client has not masked its vector of this session")
    if sorted((*survivors, *gone)) != sorted(session.neighbours):
        raise Refused("secagg: each neighbour has either answered or not")
    if (count := len(survivors) + 1) < max(session.least, session.threshold):
        found = f"a sum of {number_of(count, 'client')} is not unmasked"
        raise Refused(f"secagg: {found}; at least {session.least}")
    return survivors, gone


def _told(session: Secrets, run: int) -> bytes:
    """Return the digest of a sum's clients and their keys, which is the same for all of them."""
    own = b"".join(KeyPair.of(key).public for key in (session.mask_key, session.letter_key))
    keys = {session.me: own}
    for place, other in enumerate(session.neighbours):
        keys[other] = session.publics[2 * LENGTH * place : 2 * LENGTH * (place + 1)]
    of_all = (f"{number} ".encode() + keys[number] for number in sorted(keys))
    return statement_of(f"{run} {session.threshold}".encode(), session.tag.encode(), *of_all)


def _take(state: RecordDict, keys: Sequence[bytes], number: int) -> None:
    """Take neighbours' keys for a session, once.

    Raises
    ------
    Refused
        When some have been taken before.
    """
    before = state.get(TAKEN)
    taken = _list_of_bytes(before, words.KEYS) if isinstance(before, ConfigRecord) else []
    if {entry[NUMBER:] for entry in taken} & set(keys):
        raise Refused("secagg: the keys of a neighbour are those of another session")
    kept = [entry for entry in taken if int.from_bytes(entry[:NUMBER], "big") >= number - FRESH]
    state[TAKEN] = ConfigRecord({words.KEYS: kept + [number.to_bytes(NUMBER, "big") + key for key in keys]})


def _statement(session: Secrets, survivors: Sequence[int], gone: Sequence[int]) -> bytes:
    lists = (sorted((*survivors, session.me)), sorted(gone))
    return statement_of(session.told, session.heard, *(str(numbers).encode() for numbers in lists))


def _check_signed(
    session: Secrets,
    survivors: Sequence[int],
    gone: Sequence[int],
    signatures: Sequence[bytes],
    signer: Signer | None,
) -> None:
    """Refuse where fewer than are to be in a sum have signed what this client was told of it."""
    statement, wanted = _statement(session, survivors, gone), max(session.least, session.threshold)
    if not signer or session.signed != statement:
        raise Refused("secagg: who has answered is not what this client has signed")
    places = {other: place for place, other in enumerate(session.neighbours)}
    signed = 1 + sum(
        signer.is_signed(statement, session.signers[WHO * places[other] : WHO * (places[other] + 1)], name)
        for other, name in zip(survivors, signatures, strict=False)
    )
    if signed < wanted:
        what = f"secagg: {signed} clients have signed the same of this sum"
        raise Refused(f"{what}, and {wanted} have to ({SECAGG_PARTNERS})")


def _bytes(record: Mapping[str, object], name: str) -> bytes:
    value = record.get(name)
    if not isinstance(value, bytes):
        raise Refused(f"secagg: {name!r} is missing")
    return value


def _number(record: Mapping[str, object], name: str) -> int:
    value = record.get(name)
    if type(value) is not int or value < 0:
        raise Refused(f"secagg: {name!r} is no number")
    return value


def _numbers(record: Mapping[str, object], name: str) -> tuple[int, ...]:
    value = record.get(name, [])
    if not isinstance(value, list) or not all(type(number) is int and number >= 0 for number in value):
        raise Refused(f"secagg: {name!r} are no numbers")
    return tuple(value)


def _list_of_bytes(record: Mapping[str, object], name: str) -> Sequence[bytes]:
    value = record.get(name, [])
    if not isinstance(value, list) or not all(isinstance(entry, bytes) for entry in value):
        raise Refused(f"secagg: {name!r} are missing")
    return value


def answer_step(message: Message, context: Context, run: PrivateRun) -> Message:
    """Answer a step: advertise keys, share out secrets, or help to unmask.

    Raises
    ------
    UserError
        When the client does not do it.
    """
    asked, state = message.content[words.SECAGG], context.state
    if not isinstance(asked, ConfigRecord) or run.secagg != ON:
        raise Refused("secagg: this run has no secure aggregation")
    number = record_of(message.content, CONFIG, ConfigRecord).get(SERVER_ROUND)
    signer = Signer.of(context, number if type(number) is int else 0)
    least = least_at_client(run, whole=signer is not None)
    if (step := asked.get(words.STEP)) == words.ADVERTISE:
        found = ConfigRecord(advertised(state, signer))  # type: ignore[arg-type]
    elif step == words.SHARE:
        found = shared_out(state, asked, least, signer)
    elif step == words.AGREE and signer:
        found = agreed(state, asked, signer)
    elif step == words.UNMASK:
        found = helped(state, asked, signer)
    else:
        raise Refused("secagg: there is no such step")
    content = RecordDict({words.SECAGG: found})
    upcoming = message.content.get(words.UPCOMING)
    if step == words.UNMASK and isinstance(upcoming, ConfigRecord):
        with contextlib.suppress(Refused):  # it is then not in the next sum, and this one is unmasked
            content[words.UPCOMING] = shared_out(state, upcoming, least, signer)
    return Message(content, reply_to=message)


class IntegerSum:
    """The sum of a group's integers, in the process that has trained them; it stands for a `GroupSum`."""

    def __init__(self) -> None:
        self.total: NDArray[np.unsignedinteger] | None = None

    def add(self, content: RecordDict, arrays: Mapping[str, NDArray]) -> None:
        """Add the vector of an answer."""
        vector = viewed(record_of(content, COMPRESSED, ArrayRecord)[words.VECTOR])
        if self.total is None:
            self.total = np.zeros_like(vector)
        self.total += vector

    def records(self) -> dict[str, ArrayRecord]:
        """Return the record of the sum. One answer of the group carries it."""
        return {} if self.total is None else {COMPRESSED: ArrayRecord({words.VECTOR: encoded(self.total)})}


def leaving(
    at: AtClient, vector: NDArray[np.unsignedinteger]
) -> tuple[ArrayRecord, dict[str, dict[str, NDArray]]]:
    """Return the record of a vector, masked with ``on``, and that of the keys of the next session."""
    if at.config.secagg != ON:
        return ArrayRecord({words.VECTOR: encoded(vector)}), {}
    state, signer = at.context.state, Signer.of(at.context, at.number)
    told = at.asked, at.context.run_config
    vector = masked(state, at.asked, vector, lambda: digest_of_heard(at.views().by_name(), *told))
    said = advertised(state, signer)
    if heard := heard_in(state, at.asked):
        said[words.HEARD] = heard
    keys = {name: np.frombuffer(value, np.uint8) for name, value in said.items()}
    return ArrayRecord({words.VECTOR: encoded(vector)}), {words.SECAGG: keys}
