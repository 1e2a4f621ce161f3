"""A session of secure aggregation at the server: one sum over the clients of a phase.

Bonawitz et al. 2017 (ePrint 2017/281) with the graph of Bell et al. 2020 (ePrint 2020/704). Clients advertise
keys, which they mostly do with their last answer; share out their secrets in letters that the server cannot
open; train or evaluate, and send masked vectors; and help to unmask the sum. The letters are delivered with
the last message: nobody needs them before, and so all clients get the same message to train.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType

import numpy as np
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from numpy.typing import NDArray

from fedbn_flower.strategies import ReplyRefused
from fedbn_flower.strategies.messages.gate import answers, printable, record_of

from ..core.ground.wire import CONFIG, SERVER_ROUND
from ..core.text import are, number_of
from . import words
from .cryptography import DIGEST, LENGTH, KeyPair, agree, commitment, join, remove
from .graph import TOLERANCE, default_k, neighbours, threshold
from .signatures import MOST_NAMES, Card, Names, is_signed_by, left_out, names, who_of
from .site import SHARE_LENGTH, context_of_mask

LONGEST_LETTER = 256
"""Bytes; one has 100."""
SEED_BITS = 63
FALSELY_SHARED = "secagg: it has shared out its secrets falsely"
Send = Callable[[Sequence[Message]], Iterable[Message]]
Vector = NDArray[np.uint32] | NDArray[np.uint64]


class NoSum(Exception):
    """Why a session has no result; one line."""


@dataclass
class Member:
    """A client of a session, as the server knows it.

    Parameters
    ----------
    node : int
        Its node.
    card : Card
        What it has advertised.
    letters : Mapping[int, bytes]
        To others, by number.
    digest : bytes
        Of the seed of its mask.
    commitments : Mapping[int, bytes]
        To the shares of its seed and of its mask key, by who holds them.
    """

    node: int
    card: Card
    letters: Mapping[int, bytes]
    digest: bytes
    commitments: Mapping[int, bytes]

    @property
    def mask_key(self) -> bytes:
        """The public key by which it agrees on masks."""
        return self.card.both[0]

    def commitment(self, holder: int, is_gone: bool) -> bytes:
        """Return that to a holder's share of its mask key if it is gone, else of its seed; b"" of others."""
        start = DIGEST * is_gone
        return self.commitments.get(holder, b"")[start : start + DIGEST]

    @property
    def signs(self) -> bool:
        """Whether it has a key to sign with."""
        return bool(self.card.seal)


class Session:
    """One sum.

    Parameters
    ----------
    tag : str
        Its name, which no other session has.
    least : int
        Of how many clients a sum is at least.
    shares : int
        How many shares give a secret; 0 for as many as `threshold` says.
    least_is : str
        Why `least` is as it is, for messages.
    name : callable, optional
        Returns what a node is called.
    barred : dict[int, str], optional
        Who has no part in any more sums, and why: those who shared out their secrets falsely.
    """

    def __init__(
        self,
        tag: str,
        least: int,
        shares: int,
        least_is: str,
        name: Names = "node {}".format,
        barred: dict[int, str] | None = None,
    ) -> None:
        self.tag = tag
        self.least = least
        self.least_is = least_is
        self.shares = shares
        self.name = name
        self.barred = {} if barred is None else barred
        self.run, self.server_round = 0, 0
        """The run, and the round in which its messages are sent."""
        self.send: Send = lambda messages: ()
        """Sends them, and returns the replies."""
        self.failures: dict[int, str] = {}
        """Why a client has no part in it, or not any more, by node."""
        self.members: dict[int, Member] = {}
        """Those that have shared out their secrets, by number."""
        self.signatures = 0
        """How many have signed who has answered."""
        self._heard = b""
        self._liars: list[int] = []
        self._helpful: set[int] = set()
        self._graph: Mapping[int, Sequence[int]] = {}
        self._threshold = shares
        self._numbers: Mapping[int, int] = {}
        self._cards: Mapping[int, Card] = {}

    def open(self, nodes: Sequence[int], known: Mapping[int, Card]) -> None:
        """Have clients share out their secrets.

        Parameters
        ----------
        nodes : Sequence[int]
            Those that are to have a part in it.
        known : Mapping[int, Card]
            What was advertised before, by node.

        Raises
        ------
        NoSum
            When fewer than `least` do.
        """
        cards = {node: card for node, card in known.items() if card.is_fresh(self.server_round)}
        cards |= self._advertised([node for node in nodes if node not in cards])
        asked = self.invited({node: cards[node] for node in nodes if node in cards})
        for node, content in self._asked(words.SHARE, asked):
            self.admit(node, content.get(words.SECAGG))
        self.check(len(self.members))

    def invited(self, cards: Mapping[int, Card]) -> dict[int, dict[str, object]]:
        """Draw who masks with whom; return what each client is told of it, by node.

        Raises
        ------
        NoSum
            When there are fewer than `least`.
        """
        self.failures |= {node: why for node, why in self.barred.items() if node in cards}
        cards = {node: card for node, card in cards.items() if node not in self.barred}
        self.failures |= left_out(cards, self.run, self.server_round, self.least, self.name)
        alone = [node for node in cards if node not in self.failures]
        self.check(len(alone))
        signed = any(cards[node].seal for node in alone)
        k = len(alone) - 1 if signed else default_k(len(alone))  # who signs has to know of all
        k = max(k, self.shares - 1)  # so that there are as many shares as are needed
        self._graph = neighbours(range(len(alone)), k, secrets.randbits(SEED_BITS))
        self._threshold = self.shares or threshold(len(alone), k=k)
        self._numbers = {node: me for me, node in enumerate(alone)}
        self._cards = cards
        return {alone[me]: self._invitation(me, alone) for me in self._graph}

    def admit(self, node: int, record: object) -> None:
        """Take the letters of a client that shares out its secrets."""
        me = self._numbers[node]
        try:
            if not isinstance(record, ConfigRecord):
                raise ReplyRefused("secagg: it does not share out its secrets")
            self.members[me] = self._member(me, node, record)
        except ReplyRefused as refusal:
            self.failures[node] = printable(str(refusal))

    @property
    def present(self) -> bytes:
        """Who has a part in it, a bit for each number, as clients are told."""
        bits = np.zeros(1 + max(self.members), np.uint8)
        bits[list(self.members)] = 1
        return np.packbits(bits).tobytes()

    @property
    def nodes(self) -> dict[int, int]:
        """The numbers of those that have a part in it, by node."""
        return {member.node: me for me, member in self.members.items()}

    def close(
        self,
        total: Vector,
        answered: Collection[int],
        heard: bytes = b"",
        upcoming: Session | None = None,
        invitations: Mapping[int, Mapping[str, object]] = MappingProxyType({}),
    ) -> Vector:
        """Return the sum of the integers of those that have answered, from the sum of their vectors.

        With the same messages the next session is begun, if there is one.

        Parameters
        ----------
        total : NDArray
            The sum of the masked vectors.
        answered : Collection[int]
            Whose these are, by number.
        heard : bytes, optional
            The digest of what these were told, where sites sign.
        upcoming : Session, optional
            The next session, which clients share out their secrets in.
        invitations : Mapping[int, Mapping[str, object]]
            What they are told of it, by node.

        Raises
        ------
        NoSum
            When too few have answered, or helped.
        """
        self.check(len(answered))
        self._heard = heard
        gone = self.members.keys() - set(answered)
        signatures = self._agreed(answered, gone)
        helping = [me for me in sorted(answered) if me in signatures or not self.members[me].signs]
        asked = {self.members[me].node: self._request(me, gone, signatures) for me in helping}
        held: dict[int, dict[int, bytes]] = {me: {} for me in self.members}
        numbers = self.nodes
        further = {node: upcoming.told(invitations[node]) for node in invitations} if upcoming else {}
        further = {node: record for node, record in further.items() if node in asked}
        for node, content in self._asked(words.UNMASK, asked, further):
            holder = numbers[node]
            if upcoming and node in further:
                upcoming.admit(node, content.get(words.UPCOMING))
            false = []
            for owner, share in _shares_in(content):
                if (member := self.members.get(owner)) is None:
                    continue
                if commitment(share) == member.commitment(holder, owner in gone):
                    held[owner][holder] = share
                else:
                    false.append(member.node)
            if false:
                self.failures[node] = (
                    f"secagg: it tells false shares of the masks of {names(false, self.name)}"
                )
                self._liars.append(node)
            else:
                self._helpful.add(holder)
        seeds = [self._secret(me, held[me], digest=self.members[me].digest) for me in sorted(answered)]
        return remove(total, seeds, self._pairs(gone, held))

    def _pairs(
        self, gone: Collection[int], held: Mapping[int, Mapping[int, bytes]]
    ) -> Iterable[tuple[int, int, bytes]]:
        """Return what survivors had agreed on with those that are gone; see `remove`."""
        found = []
        for lost in sorted(gone):
            others = [me for me in self._graph[lost] if me in self.members and me not in gone]
            if not others:
                continue
            pair = KeyPair.of(self._secret(lost, held[lost], public=self.members[lost].mask_key))
            context = context_of_mask(self.tag, self._heard)
            found += [(me, lost, agree(pair, self.members[me].mask_key, context)) for me in others]
        return found

    def _secret(
        self, me: int, shares: Mapping[int, bytes], *, public: bytes = b"", digest: bytes = b""
    ) -> bytes:
        try:
            return join(shares, self._threshold, public=public, digest=digest)
        except ValueError as error:  # Tampered is one
            holders = {me, *self._graph[me]}
            without = self._helpful & holders - shares.keys()
            # Of right shares nobody else can make a wrong secret; and that many holders do not lie.
            if len(shares) >= self._threshold or len(without) > TOLERANCE * len(holders):
                node = self.members[me].node
                self.failures[node] = self.barred[node] = FALSELY_SHARED
            lying = f"{names(self._liars, self.name)} told false shares; " if self._liars else ""
            name = self.name(self.members[me].node)
            raise NoSum(f"{lying}the mask of {name} cannot be taken off: {error}") from None

    def check(self, count: int) -> None:
        """Check that so many clients are enough for a sum.

        Raises
        ------
        NoSum
            When they are not.
        """
        if count < max(self.least, self._threshold):
            wanted = self.least_is
            if self._threshold > self.least:
                needed = f"{self._threshold} are needed to unmask the sum"
                wanted = f"secagg-threshold is {self.shares}" if self.shares else needed
            raise NoSum(f"{number_of(count, 'client')} {are(count)} left, and {wanted}")

    def _advertised(self, nodes: Sequence[int]) -> dict[int, Card]:
        """Return what clients advertise of which the server knows nothing."""
        found = {}
        for node, content in self._asked(words.ADVERTISE, {node: {} for node in nodes}):
            try:
                record = record_of(content, words.SECAGG, ConfigRecord)
                found[node] = Card.of(record)
            except ReplyRefused as refusal:
                self.failures[node] = printable(str(refusal))
        return found

    def _invitation(self, me: int, invited: Sequence[int]) -> dict[str, object]:
        others = list(self._graph[me])
        cards = [self._cards[invited[other]] for other in others]
        found = {
            words.ME: me,
            words.NEIGHBOURS: others,
            words.KEYS: b"".join(card.keys for card in cards),
            words.THRESHOLD: self._threshold,
        }
        seals = [card.seal for card in cards]
        return {**found, words.SEALS: seals} if any(seals) else found

    def _member(self, me: int, node: int, record: ConfigRecord) -> Member:
        letters, digest = record.get(words.LETTERS), record.get(words.DIGEST)
        others = self._graph[me]
        if not isinstance(letters, list) or len(letters) != len(others):
            raise ReplyRefused(f"{words.LETTERS}: not one for each neighbour")
        whole = [x for x in letters if isinstance(x, bytes) and len(x) <= LONGEST_LETTER]
        if len(whole) < len(letters):
            raise ReplyRefused(f"{words.LETTERS}: not letters")
        if not isinstance(digest, bytes) or len(digest) != LENGTH:
            raise ReplyRefused(f"{words.DIGEST}: not one of {LENGTH} bytes")
        dealt, size = record.get(words.COMMITMENTS), 2 * DIGEST
        if not isinstance(dealt, bytes) or len(dealt) != size * (len(others) + 1):
            raise ReplyRefused(f"{words.COMMITMENTS}: not two for each holder; is the site's version older?")
        commitments = {holder: dealt[size * i : size * (i + 1)] for i, holder in enumerate((me, *others))}
        return Member(node, self._cards[node], dict(zip(others, whole, strict=True)), digest, commitments)

    def _agreed(self, answered: Collection[int], gone: Collection[int]) -> dict[int, bytes]:
        """Return the signatures on who has answered of those that have a key to sign with, by number.

        Raises
        ------
        NoSum
            When too few of them have signed the same.
        """
        signing = [me for me in sorted(answered) if self.members[me].signs]
        asked = {self.members[me].node: self._request(me, gone, letters=False) for me in signing}
        found: dict[int, tuple[bytes, bytes]] = {}
        numbers = self.nodes
        for node, content in self._asked(words.AGREE, asked):
            try:
                found[numbers[node]] = self._signed(node, record_of(content, words.SECAGG, ConfigRecord))
            except ReplyRefused as refusal:
                self.failures[node] = printable(str(refusal))
        same, count = (Counter(statement for statement, _ in found.values()).most_common(1) or [(b"", 0)])[0]
        for me in [me for me, (statement, _) in found.items() if statement != same]:
            node = self.members[me].node
            self.failures[node] = f"secagg: it has signed something else of the sum than {count} others"
            del found[me]
        if signing and len(found) < max(self.least, self._threshold):
            whys = (f"; {self.name(node)}: {self.failures[node]}" for node in asked if node in self.failures)
            lacking = "".join(islice(whys, MOST_NAMES))
            raise NoSum(f"{len(found)} of {len(signing)} clients have signed who has answered{lacking}")
        self.signatures = len(found)
        return {me: signature for me, (_, signature) in found.items()}

    def _signed(self, node: int, record: ConfigRecord) -> tuple[bytes, bytes]:
        """Return what a client has signed, and the signature."""
        statement, signature = record.get(words.STATEMENT), record.get(words.SIGNATURE)
        if not (isinstance(statement, bytes) and isinstance(signature, bytes)):
            raise ReplyRefused(f"secagg: {words.SIGNATURE}: not one")
        card = self._cards[node]
        if not is_signed_by(who_of(card.seal), card.public, statement, signature):
            raise ReplyRefused(f"secagg: {words.SIGNATURE}: not of the key that it signs its keys with")
        return statement, signature

    def _request(
        self,
        me: int,
        gone: Collection[int],
        signatures: Mapping[int, bytes] = MappingProxyType({}),
        letters: bool = True,
    ) -> dict[str, object]:
        """Return what a survivor is asked: who has answered, with the letters of its neighbours."""
        others = [other for other in self._graph[me] if other in self.members]
        lost = [other for other in others if other in gone]
        survivors = [other for other in others if other not in gone]
        found: dict[str, object] = {words.SURVIVORS: survivors, words.GONE: lost}
        if letters:
            owners = [self.members[other] for other in (*survivors, *lost)]
            dealt = [owner.commitment(me, place >= len(survivors)) for place, owner in enumerate(owners)]
            found[words.LETTERS] = [owner.letters[me] for owner in owners]
            found[words.COMMITMENTS] = b"".join(dealt)
        if signatures:
            found[words.SIGNATURES] = [signatures.get(other, b"") for other in survivors]
        return found

    def told(self, own: Mapping[str, object]) -> ConfigRecord:
        """Return a record to a client, with what all are told."""
        return ConfigRecord({words.TAG: self.tag, words.LEAST: self.least, **own})  # type: ignore[dict-item]

    def _asked(
        self,
        step: str,
        asked: Mapping[int, Mapping[str, object]],
        further: Mapping[int, ConfigRecord] = MappingProxyType({}),
    ) -> Iterator[tuple[int, RecordDict]]:
        """Send a step to nodes, perhaps with a further record; yield those that answered, and what."""
        config = ConfigRecord({SERVER_ROUND: self.server_round})
        contents = {
            node: RecordDict({CONFIG: config, words.SECAGG: self.told({words.STEP: step, **own})})
            for node, own in asked.items()
        }
        for node, record in further.items():
            contents[node][words.UPCOMING] = record
        messages = [Message(content, node, MessageType.EVALUATE) for node, content in contents.items()]
        waiting = dict.fromkeys(asked)
        for node, found in answers(messages, self.send(messages) if messages else (), _content):
            del waiting[node]
            if isinstance(found, ReplyRefused):
                self.failures[node] = str(found)
            else:
                yield node, found
        for node in waiting:
            self.failures[node] = f"secagg: no answer to {step!r}"


def _content(content: RecordDict) -> RecordDict:
    record_of(content, words.SECAGG, ConfigRecord)
    return content


def _shares_in(content: RecordDict) -> Iterator[tuple[int, bytes]]:
    """Yield the shares that a client tells, with whose they are; of others nothing."""
    record = record_of(content, words.SECAGG, ConfigRecord)
    owners, shares = record.get(words.NEIGHBOURS), record.get(words.SHARES)
    if isinstance(owners, list) and isinstance(shares, list) and len(owners) == len(shares):
        for owner, share in zip(owners, shares, strict=True):
            if type(owner) is int and isinstance(share, bytes) and len(share) == SHARE_LENGTH:
                yield owner, share
