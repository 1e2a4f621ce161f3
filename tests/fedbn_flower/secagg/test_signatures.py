"""Sites with keys of their own: what a server that lies gets without them, and what it gets with them."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedbn_flower.core.errors import UserError
from fedbn_flower.privacy.floors import Refused, check_secagg
from fedbn_flower.runtime.grid import identify_process
from fedbn_flower.secagg import site, words
from fedbn_flower.secagg.cryptography import LENGTH, KeyPair, agree, join, remove
from fedbn_flower.secagg.extension import SecAgg
from fedbn_flower.secagg.graph import threshold as shares_by_default
from fedbn_flower.secagg.in_words import seen
from fedbn_flower.secagg.private import least_at_client
from fedbn_flower.secagg.session import NoSum, Session
from fedbn_flower.secagg.signatures import Card, Signer, is_signed_by
from fedbn_flower.secagg.words import ADVERTISE, SECAGG

from .keyed import other_than, signer_of, written_pair
from .sites import PAIR, SITES, VECTORS, Site, masked_sites, new_sites

# What the server says to each of five, or six, who is gone, though all have answered: each of the last three
# is gone to as many others as give a secret, and nobody hears of more than two that they are.
SPLIT = {0: {2, 3}, 1: {2, 4}, 2: {3, 4}, 3: {2, 4}, 4: {3}}
OF_SIX = {0: {3, 4}, 1: {3, 5}, 2: {4, 5}, 3: {4, 5}, 4: {3, 5}, 5: {3, 4}}


@pytest.mark.parametrize(("split", "threshold"), [(SPLIT, 3), (OF_SIX, 4)])
def test_without_keys_a_server_that_splits_gets_a_sum_of_fewer_than_the_fewest(split, threshold):
    """More than half of the shares give a secret, so it never gets both of anybody. Yet it takes three sites
    out of the sum: of n with t shares n (2t - n) / t are left, for each of the others is gone to t, and each
    site lets at most n - t be gone. Four of six shares are what there are by default."""
    assert OF_SIX is not split or shares_by_default(len(split)) == threshold
    n, sites = len(split), masked_sites((None,) * len(split), threshold=threshold)
    told = [one.help(sites, split[one.me]) for one in sites]

    def secret(owner, of_seed, **known):
        holders = [me for me in range(n) if (owner in split[me]) != of_seed and owner in told[me]]
        return join({me: told[me][owner] for me in holders}, threshold, **known)

    left, lost = range(n - 3), range(n - 3, n)
    assert len(left) == -(n * (n - 2 * threshold) // threshold) < threshold
    pairs = []
    for other in lost:
        pair = KeyPair.of(secret(other, False, public=sites[other].card[:LENGTH]))
        for me in left:
            common = agree(pair, sites[me].card[:LENGTH], site.context_of_mask("one"))
            pairs.append((me, other, common))
        with pytest.raises(ValueError, match=f"shares: {threshold} are needed"):
            secret(other, True, digest=sites[other].digest)
    seeds = [secret(me, True, digest=sites[me].digest) for me in left]
    found = remove(sum(sites[me].masked for me in left), seeds, pairs)
    assert np.array_equal(found, VECTORS[: n - 3].sum(axis=0))


def test_with_keys_nobody_tells_a_share_where_others_have_signed_another_list(configs):
    sites = masked_sites(configs)
    signatures = {one.me: one.agree(SPLIT[one.me]) for one in sites}
    for one in sites:
        with pytest.raises(Refused, match="[12] clients have signed the same of this sum, and 3 have to"):
            one.help(sites, SPLIT[one.me], signatures)


def test_with_keys_a_site_signs_one_list_and_helps_with_that_one_alone(configs):
    sites = masked_sites(configs)
    signatures = {one.me: one.agree({4}) for one in sites[:4]}
    with pytest.raises(Refused, match="has signed who has answered"):
        sites[0].agree({3})
    with pytest.raises(Refused, match="no part in this session, or not any more"):
        sites[0].help(sites, {4}, signatures)
    with pytest.raises(Refused, match="is not what this client has signed"):
        sites[1].help(sites, {3}, {**signatures, 4: b""})
    few = {**signatures, 1: b"", 3: signatures[2]}  # one is missing, another is of somebody else
    with pytest.raises(Refused, match="2 clients have signed the same"):
        sites[2].help(sites, {4}, few)
    assert set(sites[3].help(sites, {4}, {**signatures, 0: b""})) == set(range(SITES))


def test_a_site_wants_as_many_signatures_as_a_sum_has_sites_at_least(configs):
    sites = new_sites(configs)
    sites[0].least = 4
    for one in sites:
        one.share(sites)
    for one in sites:
        one.mask()
    signatures = {one.me: one.agree(set()) for one in sites} | {3: b"", 4: b""}
    assert sites[1].help(sites, set(), signatures)
    with pytest.raises(Refused, match="3 clients have signed the same of this sum, and 4 have to"):
        sites[0].help(sites, set(), signatures)


@pytest.mark.parametrize("with_keys", [False, True])
def test_with_keys_masks_do_not_cancel_where_one_site_got_another_model(configs, with_keys):
    """The attack of Pasquini et al. 2022 (arXiv 2111.07380): the others' model is such that they send 0. They
    are told the same, and help; they would also if site 0 were not asked."""
    for models in ([b"model"] * SITES, [b"model", *[b"another"] * 4]):
        sites = masked_sites(configs if with_keys else (None,) * SITES, models)
        signatures = {one.me: one.agree(set()) for one in sites} if with_keys else None
        told = [one.help(sites, set(), signatures) for one in sites[1:]]
        shares = [{i: of[one.me] for i, of in enumerate(told)} for one in sites]
        seeds = [join(of, 3, digest=one.digest) for of, one in zip(shares, sites, strict=True)]
        found = remove(sum(one.masked for one in sites), seeds, [])
        same = not with_keys or len(set(models)) == 1
        assert np.array_equal(found, VECTORS[:SITES].sum(axis=0)) == same
    if with_keys:
        with pytest.raises(Refused, match="1 clients have signed the same"):
            sites[0].help(sites, set(), signatures)


def test_with_keys_nobody_helps_to_unmask_a_sum_in_which_one_got_other_keys(configs):
    """Those of site 1 are its own, signed in this round, but not those that it masks with."""
    sites = new_sites(configs)
    sites[1].advertise()
    sites[0].share(sites)
    sites[1].advertise()
    for one in sites[1:]:
        one.share(sites)
    for one in sites:
        one.mask()
    signatures = {one.me: one.agree(set()) for one in sites}
    with pytest.raises(Refused, match="1 clients have signed the same"):
        sites[0].help(sites, set(), signatures)


def test_with_keys_nobody_helps_without_signatures_or_without_its_key(configs):
    sites = masked_sites(configs)
    with pytest.raises(Refused, match="is not what this client has signed"):
        sites[0].help(sites, set())
    sites[1].signer = None
    with pytest.raises(Refused, match="is not what this client has signed"):
        sites[1].help(sites, set())


def made_up(signer, number=3, run=1):
    """Keys of the server's, sealed by somebody."""
    keys = KeyPair.new().public + KeyPair.new().public
    return keys, replace(signer, number=number, run=run).seal(keys)


# What becomes of the neighbours' keys and seals on their way to site 0 in round 3; the first is of site 1.
LIES = {
    "its own keys with their seals": (
        lambda keys, seals, server, first: ([made_up(server)[0] for _ in keys], seals),
        "the keys of client 1 of the sum are not those that .* has signed in round 3 of this run",
    ),
    "its own keys with its own seals": (
        lambda keys, seals, server, first: zip(*[made_up(server) for _ in keys], strict=True),
        "client 1 of the sum are signed by [0-9a-f]{16}, which is none of secagg-partners",
    ),
    "seals that are none": (lambda keys, seals, *_: (keys, [1, 2, 3, 4]), "'seals' are missing"),
    "an empty seal": (lambda keys, seals, *_: (keys, [b"", *seals[1:]]), "client 1 of the sum are not sig"),
    "fewer seals": (lambda keys, seals, *_: (keys, seals[1:]), "keys of neighbours are not signed"),
    "a signature of A on B's keys": (
        lambda keys, seals, *_: (keys, [seals[1], seals[0], *seals[2:]]),
        "client 1 of the sum are not those that",
    ),
    "keys that one has signed": (
        lambda keys, seals, server, first: zip(*[made_up(first) for _ in keys], strict=True),
        "the keys of two neighbours are signed by one site",
    ),
    "keys signed two rounds ago": (
        lambda keys, seals, server, first: changed(keys, seals, *made_up(first, number=1)),
        "client 1 of the sum are signed for round 1, and this is round 3",
    ),
    "keys signed for a later round": (
        lambda keys, seals, server, first: changed(keys, seals, *made_up(first, number=4)),
        "client 1 of the sum are signed for round 4, and this is round 3",
    ),
    "keys signed in another run": (
        lambda keys, seals, server, first: changed(keys, seals, *made_up(first, run=2)),
        "client 1 of the sum are not those that",
    ),
    "another round on a seal": (
        lambda keys, seals, *_: (keys, [(2).to_bytes(4, "big") + seals[0][4:], *seals[1:]]),
        "client 1 of the sum are not those that .* has signed in round 2",
    ),
}


def changed(keys, seals, key, seal):
    """The same, but for the first."""
    return [key, *keys[1:]], [seal, *seals[1:]]


@pytest.mark.parametrize("lie", LIES)
def test_a_site_has_no_part_in_a_sum_with_keys_that_no_partner_has_signed_for_it(configs, lie, tmp_path):
    change, why = LIES[lie]
    sites = [Site(me, config, number=3) for me, config in enumerate(configs)]
    server = signer_of(other_than(configs, 0, tmp_path), 3)
    keys, seals = [one.card[:PAIR] for one in sites[1:]], [one.card[PAIR:] for one in sites[1:]]
    keys, seals = change(keys, seals, server, sites[1].signer)
    with pytest.raises(Refused, match=f"secagg: .*{why}"):
        sites[0].share(sites, **{words.KEYS: b"".join(keys), words.SEALS: list(seals)})
    assert site.SESSION not in sites[0].state


def test_a_key_that_signs_nothing_has_signed_nothing():
    key = X25519PrivateKey.generate().public_key()
    public = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert not is_signed_by(sha256(public).digest(), public, b"sum", bytes(64))


def test_keys_are_taken_once(configs):
    sites = new_sites(configs)
    sites[0].share(sites)
    for one in (sites[0], *sites[2:]):
        one.advertise()
    with pytest.raises(Refused, match="the keys of a neighbour are those of another session"):
        sites[0].share(sites)


def test_a_report_says_whether_sites_have_signed():
    found = {"mode": "on", "least": 3, "sums-of": [3, 4]}
    without, signed = (" ".join(seen({**found, **more})) for more in ({}, {"signed": 3}))
    assert "one that lied could have seen single answers" in without
    assert "(secagg-key): each sum at least 3 of them" in signed
    extension = SecAgg.__new__(SecAgg)
    extension.privacy = None
    for state in ({"sums": [3, 4], "signed": 3}, {"sums": [3, 4]}, {}):
        extension.restore(state)
        assert {name: value for name, value in extension.state().items() if name != "error"} == state


# ---- the server -----------------------------------------------------------------------------------------


def test_the_server_asks_for_keys_that_are_fresh_and_makes_all_of_a_signed_sum_neighbours():
    """Of 100 clients each has 78 neighbours otherwise, and does not see whether a sum has all its noise."""
    keys = {node: Card(bytes([node]) * LENGTH + bytes([100 + node]) * LENGTH) for node in range(100)}
    signers = {node: Signer(Ed25519PrivateKey.generate(), {}, 1, 0) for node in keys}
    known_to_all = frozenset(signer.me for signer in signers.values())

    def sealed(node, number):
        signer, card = replace(signers[node], number=number), keys[node]
        return replace(card, seal=signer.seal(card.keys), public=signer.public, partners=known_to_all)

    known = keys | {node: sealed(node, number) for node, number in {0: 5, 1: 4, 2: 3}.items()}
    asked = []

    def send(messages):
        asked.extend((m.content[SECAGG]["step"], m.metadata.dst_node_id) for m in messages)
        return ()

    identify_process()
    session = Session("one", 3, 0, "three are the least")
    session.server_round, session.send = 5, send
    with pytest.raises(NoSum):
        session.open(list(range(5)), known)
    assert [node for step, node in asked if step == ADVERTISE] == [2]
    session = Session("one", 3, 0, "")
    session.run, session.server_round = 1, 5
    signed = session.invited({node: sealed(node, 5) for node in keys})
    unsealed = Session("one", 3, 0, "").invited(keys)
    assert {len(told[words.NEIGHBOURS]) for told in signed.values()} == {99}
    assert {len(told[words.NEIGHBOURS]) for told in unsealed.values()} == {78}
    assert all(words.SEALS not in told for told in unsealed.values())


def test_a_site_with_keys_sees_whether_a_sum_of_many_has_all_its_noise(configured):
    keys = {"dp": "client", "dp_noise": 1.0, "dp_delta": 1e-5, "dp_clip": 0.5, "secagg": "on"}
    config = configured(**keys, partition="iid", num_clients=100, model="2nn", client="shared")
    assert [least_at_client(config, whole) for whole in (False, True)] == [3, 67]


# ---- node configs ---------------------------------------------------------------------------------------


def test_mistakes_in_a_node_config_are_one_line(configs, configured, tmp_path):
    on = configured(secagg="on", clip_update_norm=1.0, partition="iid", num_clients=5)
    with pytest.raises(UserError, match=r"secagg: 'off' is not allowed at this site; .* \(secagg-key\)"):
        check_secagg(configs[0], configured())
    check_secagg(configs[0], on)
    for alone, other in (("secagg-key", "secagg-partners"), ("secagg-partners", "secagg-key")):
        with pytest.raises(UserError, match=rf"{alone}: .* expected a {other} beside it in the node config"):
            check_secagg({alone: configs[0][alone]}, on)
        for value, said in ((5, "5 is not allowed"), ("", "missing")):
            with pytest.raises(UserError, match=rf"{alone}: {said}; expected (the|a) file .* .in the node"):
                check_secagg({**configs[0], alone: value}, on)
    (tmp_path / "text").write_text("no key\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "rsa").mkdir()
    rsa, partners = (
        written_pair(generate_private_key(65537, 2048), tmp_path / "rsa", "rsa"),
        "secagg-partners",
    )
    mistakes = {
        ("secagg-key", tmp_path / "gone"): "No such file or directory",
        ("secagg-key", tmp_path): "Is a directory",
        ("secagg-key", tmp_path / "text"): "PEM",
        ("secagg-key", rsa): "another kind of key",
        (partners, tmp_path / "gone"): "No such file or directory",
        (partners, tmp_path / "text"): "text has something else",
        (partners, tmp_path / "rsa" / "partners"): "rsa.pub has another kind of key",
        (partners, tmp_path / "empty"): "of other sites too",
        (partners, configs[0]["secagg-key"]): "site-0 has something else",
    }
    for (key, path), why in mistakes.items():
        with pytest.raises(UserError, match=rf"^{key}: '{path}' is not allowed; expected .*{why}") as raised:
            signer_of({**configs[0], key: str(path)})
        assert "\n" not in str(raised.value)


def test_partners_are_files_of_a_folder_or_the_keys_of_one_file(configs, tmp_path):
    signers = [signer_of(config) for config in configs]
    files = sorted(Path(configs[0]["secagg-partners"]).iterdir())  # PEM and OpenSSH
    (tmp_path / "all").write_text("# partners\n" + "\n".join(file.read_text() for file in files))
    for signer, config in zip(signers, configs, strict=True):
        assert signer.partners.keys() == {other.me for other in signers if other is not signer}
        one = signer_of({**config, "secagg-partners": str(tmp_path / "all")})
        assert one.partners.keys() == signer.partners.keys()
    assert "rivate" not in repr(signers[0])
