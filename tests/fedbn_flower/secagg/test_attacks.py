"""A server and clients that lie: it costs a client its part or the round its result; no sum is wrong."""

import copy
from functools import partial

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord

from fedbn_flower.core.errors import RunFailed
from fedbn_flower.privacy.floors import Refused
from fedbn_flower.runtime.grid import partition_of
from fedbn_flower.secagg import site, words
from fedbn_flower.secagg.cryptography import LENGTH, KeyPair, commitment
from fedbn_flower.secagg.words import ADVERTISE, SECAGG, SHARE, UNMASK
from fedbn_flower.strategies.messages.npy import encoded

from ..privacy.runs import run_on as recorded_on
from .grids import Lossy, run_on, spellings
from .keyed import Keyed, node_configs, private_parts
from .sites import PAIR, VECTORS, new_sites, shared_sites

LIAR = 2


@pytest.fixture
def three():
    """Three clients that have shared out their secrets, of which two give one."""
    return shared_sites((None,) * 3, 2)


def masked(sites):
    for one in sites:
        one.mask()
    return sites


def test_a_client_tells_no_share_but_as_it_was_dealt(three):
    """Nor does it tell the share of the key where that of the seed is wanted."""
    client, one, gone = masked(three)
    (seed_1, _), (seed_2, key_2) = ((dealt[:16], dealt[16:]) for dealt in (one.dealt[0], gone.dealt[0]))
    told, without = (
        copy.deepcopy(client).help(three, {2}, **{words.COMMITMENTS: seed_1 + of_2})
        for of_2 in (key_2, seed_2)
    )
    assert (told.keys(), without.keys()) == ({0, 1, 2}, {0, 1})
    assert (commitment(told[1]), commitment(told[2])) == (seed_1, key_2)
    assert commitment(told[0]) == client.dealt[0][:16]
    with pytest.raises(Refused, match="commitments: not one for each letter; is the server's version older?"):
        client.help(three, {2}, **{words.COMMITMENTS: seed_1})


def test_no_client_tells_both_secrets_of_another(three):
    client, other, gone = masked(three)
    letters = [client.letters[1], gone.letters[1], client.letters[1]]
    both = {words.GONE: [0], words.LETTERS: letters, words.COMMITMENTS: bytes(3 * 16)}
    with pytest.raises(Refused, match="each neighbour has either answered or not"):
        other.help(three, set(), **both)
    with pytest.raises(Refused, match="no part in this session, or not any more"):  # it has forgotten all
        other.help(three, set())
    assert set(client.help(three, {2})) == {0, 1, 2}
    with pytest.raises(Refused, match="no part in this session, or not any more"):
        client.help(three, {1})


def test_a_client_masks_one_vector_in_a_session_and_shares_its_keys_once(three):
    client, other, _ = three
    client.mask()
    assert not np.array_equal(client.masked, VECTORS[0])
    with pytest.raises(Refused, match="has masked its vector of this session"):
        client.mask()
    with pytest.raises(Refused, match="no part in this session"):
        other.mask(**{words.TAG: "another"})
    with pytest.raises(Refused, match="no keys that it has not used"):
        other.share(three)


def test_a_client_has_no_part_in_a_sum_of_too_few(three):
    with pytest.raises(Refused, match="1 client is too few; at least 2"):
        three[0].mask(**{words.PRESENT: bytes([0b10000000])})
    three[1].mask()
    with pytest.raises(Refused, match="a sum of 1 client is not unmasked; at least 2"):
        three[1].help(three, {0, 2})


@pytest.mark.parametrize(
    ("changes", "why", "least"),
    [
        ({words.NEIGHBOURS: [1, 1]}, "not as many as their keys", 2),
        ({words.NEIGHBOURS: [1, 0]}, "not as many as their keys", 2),
        ({words.KEYS: b"short"}, "not as many as their keys", 2),
        ({words.THRESHOLD: 1}, "1 share are too few", 2),
        ({words.THRESHOLD: 4}, "4 shares are too few", 2),
        ({words.ME: -1}, "'me' is no number", 2),
        ({words.ME: 0.0}, "'me' is no number", 2),
        ({words.THRESHOLD: "2"}, "'threshold' is no number", 2),
        ({}, "3 clients and 2 shares are too few; at least 4 clients", 4),
        ({words.KEYS: "twice"}, "two neighbours have the same keys", 2),
    ],
)
def test_a_client_refuses_an_invitation_that_cannot_be(changes, why, least):
    sites = new_sites((None,) * 3, 2)
    sites[0].least = least
    if changes.get(words.KEYS) == "twice":
        changes = {words.KEYS: 2 * sites[1].card[:PAIR]}
    with pytest.raises(Refused, match=why):
        sites[0].share(sites, **changes)


def bytes_of(found, name, value):
    found[SECAGG] = ConfigRecord({**found[SECAGG], name: value})


def changed_in(name, change):
    return lambda reply: bytes_of(reply.content, name, change(list(reply.content[SECAGG][name])))


letters_changed, shares_changed = (partial(changed_in, name) for name in (words.LETTERS, words.SHARES))


def keys_changed(value):
    return lambda reply: bytes_of(reply.content, words.KEYS, value)


def vector_changed(change):
    def changed(reply):
        record = reply.content["compressed"]
        reply.content["compressed"] = ArrayRecord({"vector": encoded(change(record["vector"].numpy()))})

    return changed


LOW_ORDER = bytes(LENGTH)
LIES = {
    # step, what becomes of the liar's answer, and whether the others still have a sum
    "keys of low order": (ADVERTISE, keys_changed(LOW_ORDER + bytes([9, *bytes(31)])), True),
    "keys that are short": (ADVERTISE, keys_changed(b"key"), True),
    "keys that are one": (ADVERTISE, keys_changed(2 * KeyPair.new().public), True),
    "letters that are missing": (SHARE, letters_changed(lambda found: found[1:]), True),
    "letters that are long": (SHARE, letters_changed(lambda found: [x * 100 for x in found]), True),
    "a digest of something": (
        SHARE,
        lambda reply: bytes_of(reply.content, words.DIGEST, bytes(LENGTH)),
        "later",
    ),
    "letters that are cut": (SHARE, letters_changed(lambda found: [x[:-1] for x in found]), "later"),
    "letters that are swapped": (SHARE, letters_changed(lambda found: found[::-1]), "later"),
    "no commitments": (SHARE, lambda reply: bytes_of(reply.content, words.COMMITMENTS, b""), True),
    "commitments to other shares": (
        SHARE,
        lambda reply: bytes_of(reply.content, words.COMMITMENTS, bytes(5 * 32)),
        "later",
    ),
    "a vector that is short": ("train", vector_changed(lambda vector: vector[1:]), True),
    "a vector of floats": ("train", vector_changed(lambda vector: vector.astype(np.float32)), True),
    "an update beyond the bound": (
        "train",
        vector_changed(lambda vector: vector + (np.arange(vector.size) < 1000) * np.uint32(2**29)),
        False,
    ),
    "an answer without a record": (UNMASK, lambda reply: reply.content.pop(SECAGG), True),
    "shares that are false": (UNMASK, shares_changed(lambda found: [x[:4] + bytes(32) for x in found]), True),
    "shares that are short": (UNMASK, shares_changed(lambda found: [x[1:] for x in found]), True),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("lie", LIES)
def test_a_lie_costs_its_client_or_the_round_and_never_makes_a_wrong_sum(settings, plain_model, lie):
    """The sum is that of all, or of all others; or there is none in this round, and the model stays.

    Who shares out its secrets falsely has no part in the sums of later rounds, which the others have.
    """
    step, change, others_go_on = LIES[lie]

    def changed(at, message, reply):
        first = message.content["config"].get("server-round") == 1
        if reply is not None and first and at == step and partition_of(message) == LIAR:
            change(reply)

    config = settings("on", fraction_evaluate=0)
    grid = Lossy(config, changed=changed)
    if others_go_on == "later":
        later = settings("on", rounds=3, fraction_evaluate=0)
        results, _ = run_on(later, Lossy(later, changed=changed))
        assert [sorted(result.train.metrics) for result in results] == [[], [0, 1, 3, 4], [0, 1, 3, 4]]
        assert results[2].train.failures == {LIAR: "secagg: it has shared out its secrets falsely"}
        return
    if not others_go_on:
        with pytest.raises(RunFailed, match="no round|never updated"):
            run_on(config, grid)
        return
    results, model = run_on(config, grid)
    used = set(results[0].train.metrics)
    assert used == set(range(5)) - ({LIAR} if step != UNMASK else set())
    assert model == plain_model(*sorted(set(range(5)) - used))


def test_words_in_the_place_of_bytes_cost_their_client(settings):
    texts = {words.DIGEST: "d" * LENGTH, words.COMMITMENTS: "c" * 5 * 32}
    whys = {LIAR: "not one of 32 bytes", LIAR + 1: "not two for each holder"}

    def changed(at, message, reply):
        if reply is not None and at == SHARE and (place := partition_of(message) - LIAR) in (0, 1):
            bytes_of(reply.content, *[*texts.items()][place])

    config = settings("on", fraction_evaluate=0)
    results, _ = run_on(config, Lossy(config, changed=changed))
    assert set(results[0].train.metrics) == {0, 1, 4}
    assert all(why in results[0].train.failures[liar] for liar, why in whys.items())


def run_with_false_shares(config, liars):
    """Liars tell the others' shares with a bit changed; each of them would do."""

    def changed(at, message, reply):
        if reply is not None and at == UNMASK and partition_of(message) in liars:
            shares_changed(lambda found: [x[:-1] + bytes([x[-1] ^ 1]) for x in found])(reply)

    return run_on(config, Lossy(config, changed=changed))


@pytest.mark.parametrize("sites", [5, pytest.param(15, marks=pytest.mark.slow)])
def test_a_third_that_tells_false_shares_is_named_and_the_sum_stands(settings, caplog, sites):
    values = {"num_clients": sites, "fraction_evaluate": 0}
    liars = range(sites // 3)
    results, model = run_with_false_shares(settings("on", secagg_threshold=0, **values), liars)
    assert model == run_on(settings("plain", **values))[1]
    assert len(results[0].train.metrics) == sites
    lines = [r.getMessage() for r in caplog.records if "has answered, but" in r.getMessage()]
    began = "has answered, but: secagg: it tells false shares of the masks of"
    assert [line.split(began)[0] for line in lines] == [f"round 1, train: partition {i} " for i in liars]


def test_more_liars_than_that_are_named_and_no_honest_one_is_left_out(settings, caplog):
    config = settings("on", secagg_threshold=0, num_clients=5, rounds=2, fraction_evaluate=0)
    with pytest.raises(RunFailed, match="no round|never updated"):
        run_with_false_shares(config, {1, 4})
    why = "partition 1, partition 4 told false shares; the mask of partition 0 cannot be taken off: 3 shares"
    lines = [f"round {i}, train: secagg: there is no sum: {why}: 4 are needed" for i in (1, 2)]
    assert [r.getMessage() for r in caplog.records if "train: secagg: there is" in r.getMessage()] == lines
    assert "falsely" not in caplog.text


def test_a_client_that_advertises_anothers_keys_is_left_out(settings):
    stolen = {}

    def changed(at, message, reply):
        if reply is not None and at == ADVERTISE:
            if partition_of(message) == 0:
                stolen["keys"] = reply.content[SECAGG][words.KEYS]
            if partition_of(message) == LIAR:
                bytes_of(reply.content, words.KEYS, stolen["keys"])

    config = settings("on", fraction_evaluate=0)
    results, _ = run_on(config, Lossy(config, changed=changed))
    assert results[0].train.failures == {LIAR: "secagg: it advertises the keys of another client"}


def test_an_answer_counts_once(settings, plain_model):
    class Twice(Lossy):
        def work(self, messages, timeout):
            for reply in super().work(messages, timeout):
                yield reply
                yield reply

    assert run_on(settings("on"), Twice(settings("on")))[1] == plain_model()


def test_a_server_that_tells_different_clients_different_things_gets_no_sum(settings, plain_model):
    """It tells client 1 that client 0 is gone, and the others that it has answered."""

    def changed(at, message, reply):
        if reply is None and at == UNMASK and partition_of(message) == 1:
            asked = dict(message.content[SECAGG])
            survivors, gone = list(asked[words.SURVIVORS]), list(asked[words.GONE])
            letters = list(asked[words.LETTERS])
            place = survivors.index(0)
            gone.append(survivors.pop(place))
            letters.append(letters.pop(place))
            asked |= {words.SURVIVORS: survivors, words.GONE: gone, words.LETTERS: letters}
            message.content[SECAGG] = ConfigRecord(asked)

    results, model = run_on(settings("on"), Lossy(settings("on"), changed=changed))
    assert model == plain_model()  # four other shares of the seed are enough
    assert set(results[0].train.metrics) == set(range(5))


def test_no_secret_is_in_a_file_a_log_or_a_message(settings, tmp_path, monkeypatch, caplog):
    """All secrets of a run are noted as they are made; then everything that it wrote or sent is searched."""
    secrets = set()

    def note(owner, name, values=lambda found: [found]):
        made = getattr(owner, name)

        def noting(*arguments):
            found = made(*arguments)
            secrets.update(one for one in values(found) if len(one) in (LENGTH, 36))
            return found

        monkeypatch.setattr(owner, name, noting)

    note(KeyPair, "private_bytes")
    note(site, "split", lambda shares: shares.values())
    note(site.os, "urandom")
    configs, config = node_configs(tmp_path / "keys", 5), settings("on", rounds=2, checkpoint_every=1)
    grid = Keyed(config, configs)
    caplog.set_level(0)
    summary = recorded_on(grid, config, tmp_path / "run")
    monkeypatch.undo()
    assert summary["extensions"]["secagg"]["signed"] == 5
    assert len(secrets) > 5 * 2 * 2
    files = b"\0".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    for spelt in (spelt for secret in secrets for spelt in spellings(secret)):
        assert spelt not in files
        assert spelt.decode("latin-1") not in caplog.text
    sent = [_bytes_of(one.content) for *_, asked, reply in grid.carried for one in (asked, reply)]
    unmasking = [found for found in sent if b"\0shares\0" in found]
    others = b"".join(found for found in sent if b"\0shares\0" not in found)
    assert unmasking
    for secret in secrets:
        assert secret not in others
        if len(secret) != 36:
            assert not any(secret in found for found in unmasking)
    kept = b"".join(_bytes_of(context.state) for context in grid._contexts.values())
    everything = b"\0".join([files, caplog.text.encode(), kept, others, *unmasking])
    for part in private_parts(configs):
        assert part not in everything


def _bytes_of(records):
    parts = []
    for name, record in records.items():
        parts.append(name.encode())
        for key, value in record.items():
            parts.append(b"\0" + key.encode() + b"\0")
            values = value if isinstance(value, list) else [value]
            parts += [v if isinstance(v, bytes) else str(v).encode() for v in values]
            parts += [value.data] if isinstance(record, ArrayRecord) else []
    return b"".join(map(bytes, parts))
