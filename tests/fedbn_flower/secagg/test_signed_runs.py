"""Runs of sites with keys of their own: who does not fit is named and left out of the others' sum."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import ConfigRecord, Message, RecordDict

from fedbn_flower.core.errors import RunFailed
from fedbn_flower.core.private import set_message_id
from fedbn_flower.runtime.grid import node_context, partition_of
from fedbn_flower.secagg import words
from fedbn_flower.secagg.cryptography import LENGTH
from fedbn_flower.secagg.words import ADVERTISE, AGREE, SECAGG, SHARE, UNMASK, UPCOMING
from fedbn_flower.site.adapter import app

from .grids import Lossy, run_on
from .keyed import Keyed, other_than, signer_of, written_pair

SITES = 5
PAIR = 2 * LENGTH


def steps_of(grid):
    return [message.content[SECAGG]["step"] for *_, message, _ in grid.carried if SECAGG in message.content]


def test_sums_have_the_same_bits_with_keys_and_nothing_else_is_sent_without(settings, configs):
    """Two rounds. One site drops out in training; one has answered, but does not sign."""
    plain, masked = settings("plain", rounds=2), settings("on", rounds=2)
    expected = run_on(plain, Lossy(plain, {"train": (4,)}))
    with_keys = Keyed(masked, configs, {"train": (4,), AGREE: (1,)})
    results, model = run_on(masked, with_keys)
    assert model == expected[1]
    assert [set(result.train.metrics) for result in results] == [{0, 1, 2, 3}] * 2
    steps = steps_of(with_keys)
    assert steps.count(AGREE) == 2 * 4 + 2 * SITES  # of two trainings and two evaluations
    assert steps.count(UNMASK) == 2 * 3 + 2 * SITES  # who has not signed is not asked again
    without = Lossy(settings("on"))
    run_on(settings("on"), without)
    assert AGREE not in steps_of(without)
    for _, _, message, reply in without.carried:
        for content in (message.content, reply.content):
            for record in (content.get(SECAGG), content.get(UPCOMING)):
                assert not {words.SEALS, words.SIGNATURE, words.SIGNATURES, words.HEARD} & set(record or ())
                if record and words.KEYS in record and words.STEP not in record:
                    value = record[words.KEYS]
                    whole = value if isinstance(value, bytes) else value.numpy().tobytes()
                    assert len(whole) % PAIR == 0


def told_another_rate(*places):
    """Sites that are told another learning rate than the others."""

    def changed(step, message, reply):
        if reply is None and step == "train" and partition_of(message) in places:
            content = RecordDict(dict(message.content))
            content["config"] = ConfigRecord({**content["config"], "learning-rate": 0.0})
            another = Message(content, message.metadata.dst_node_id, "train")
            set_message_id(another, message.metadata.message_id)
            return another
        return None

    return changed


def test_a_site_that_was_told_something_else_is_left_out_of_the_sum(settings, configs):
    """Another model, or another key of the configuration, is in the masks: they do not cancel. It is named,
    and the sum is that of the others, as if it had not answered."""
    config, plain = settings("on", fraction_evaluate=0), settings("plain", fraction_evaluate=0)
    grid = Keyed(config, configs, changed=told_another_rate(2))
    results, model = run_on(config, grid)
    why = "secagg: it was told another model or configuration than 4 others"
    assert results[0].train.failures == {2: why}
    assert model == run_on(plain, Lossy(plain, {"train": (2,)}))[1]
    seeds_of_2 = [m for s, p, m, _ in grid.carried if s == UNMASK and 2 in m.content[SECAGG][words.SURVIVORS]]
    assert not seeds_of_2  # nobody is asked for what would take its own mask off


def test_where_too_few_were_told_the_same_one_line_says_which_sites_were_not(settings, configs):
    config = settings("on", fraction_evaluate=0, num_clients=4, secagg_threshold=0)
    grid = Keyed(config, configs, changed=told_another_rate(2, 3))
    why = "2 clients are left, and secagg-min is 3; told something else: partition 2, partition 3"
    with pytest.raises(RunFailed, match=f"secagg: there is no sum: {why}"):
        run_on(config, grid)
    assert not {AGREE, UNMASK} & set(steps_of(grid))


def test_with_few_signatures_a_round_has_no_result(settings, configs):
    config = settings("on", fraction_evaluate=0)
    grid = Keyed(config, configs, {AGREE: (0, 1, 2)})
    why = (
        r"2 of 5 clients have signed who has answered; partition 0: secagg: no answer to 'agree'; partition 1"
    )
    with pytest.raises(RunFailed, match=why):
        run_on(config, grid)
    assert UNMASK not in steps_of(grid)


@pytest.mark.parametrize("least", [3, 5])
def test_a_signature_that_is_not_the_sites_is_seen_and_its_site_named(settings, configs, caplog, least):
    """The others sign the same, which is enough for a sum of three, and not for one of five."""

    def changed(step, message, reply):
        if reply is not None and step == AGREE and partition_of(message) == 1:
            record = reply.content[SECAGG]
            reply.content[SECAGG] = ConfigRecord({**record, words.SIGNATURE: bytes(64)})

    config = settings("on", fraction_evaluate=0, secagg_min=least, secagg_threshold=0)
    why = "secagg: signature: not of the key that it signs its keys with"
    if least == 5:
        with pytest.raises(
            RunFailed, match=f"4 of 5 clients have signed who has answered; partition 1: {why}"
        ):
            run_on(config, Keyed(config, configs, changed=changed))
        return
    results, _ = run_on(config, Keyed(config, configs, changed=changed))
    assert f"round 1, train: partition 1 has answered, but: {why}" in caplog.messages
    assert set(results[0].train.metrics) == set(range(5))


def lying_to(place, at, change):
    """A server that changes what it says to one site in a step of the first round."""

    def changed(_, message, reply):
        record = message.content.get(SECAGG)
        first = message.content["config"].get("server-round", 0) == 1
        if reply is None and first and record and record.get("step") == at and partition_of(message) == place:
            message.content[SECAGG] = ConfigRecord({**record, **change(record)})

    return changed


def test_a_site_that_is_told_of_other_survivors_tells_no_share(settings, configs, caplog):
    def gone(record):
        survivors = list(record[words.SURVIVORS])
        return {words.SURVIVORS: survivors[1:], words.GONE: survivors[:1]}

    changed = lying_to(2, AGREE, gone)
    grid = Keyed(settings("on"), configs, changed=changed)
    run_on(settings("on"), grid)
    told = [p for _, p, m, r in grid.carried if steps_in(m) == UNMASK and r.has_content()]
    assert sorted(set(told)) == [0, 1, 3, 4]
    why = "secagg: it has signed something else of the sum than 4 others"
    assert f"round 1, train: partition 2 has answered, but: {why}" in caplog.messages


def steps_in(message):
    return message.content[SECAGG]["step"] if SECAGG in message.content else None


def with_partners(configs, place, folder, *others):
    """The node config of a site whose partners are the sites at these places."""
    partners = folder / f"partners-{place}"
    partners.mkdir(parents=True)
    for other in others:
        file = Path(configs[other]["secagg-partners"]) / f"site-{other}.pub"
        (partners / file.name).write_bytes(file.read_bytes())
    return {**configs[place], "secagg-partners": str(partners)}


def test_a_site_that_partners_do_not_know_or_that_does_not_know_them_is_left_out(settings, configs, tmp_path):
    unknown = [*configs[:4], other_than(configs, 4, tmp_path)]
    without = (
        "secagg: the secagg-partners of partition 0, partition 1, partition 2, partition 3 do not have its"
    )
    assert left_out_of(settings, unknown, rounds=2) == {4: f"{without} key"}
    alone = [*configs[:4], with_partners(configs, 4, tmp_path, 0, 2)]
    why = "secagg: its secagg-partners do not have the key of partition 1, partition 3"
    assert left_out_of(settings, alone) == {4: why}
    says_so = [*configs[:4], with_partners(configs, 4, tmp_path / "says", 0, 1, 2)]
    assert list(left_out_of(settings, says_so)) == [4]  # and not 3, which all others know
    config, grid = settings("on", secagg_min=5), Keyed(settings("on", secagg_min=5), unknown)
    with pytest.raises(RunFailed, match="there is no sum: 4 clients are left, and secagg-min is 5"):
        run_on(config, grid)
    assert not {SHARE, "train"} & {step for step, *_ in grid.carried}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("of", ["another's name", "another run", "another key", "no key"])
def test_keys_that_are_not_signed_with_the_sites_own_key_cost_that_site_alone(settings, configs, of):
    """It is site 1, which is before most others: none of them is taken for a copy of it."""
    other = signer_of(configs[1], number=1, run=2)

    def changed(step, message, reply):
        if reply is None or step != ADVERTISE or partition_of(message) != 1:
            return
        record = dict(reply.content[SECAGG])
        keys, seal = record[words.KEYS][:PAIR], record[words.KEYS][PAIR:]
        if of == "another's name":
            record |= {words.KEYS: keys + seal[:4] + signer_of(configs[3]).me + seal[36:]}
        elif of == "another run":
            record |= {words.KEYS: keys + other.seal(keys)}
        else:
            record |= {words.PUBLIC: signer_of(configs[2]).public if of == "another key" else b""}
        reply.content[SECAGG] = ConfigRecord(record)

    config = settings("on", fraction_evaluate=0)
    results, _ = run_on(config, Keyed(config, configs, changed=changed))
    why = "secagg: its keys are not signed with its key in this round of the run"
    assert results[0].train.failures == {1: why}


def test_of_two_sites_with_one_key_the_second_is_left_out(settings, configs):
    of_one = left_out_of(settings, [*configs[:3], configs[1], configs[4]])
    assert of_one == {3: "secagg: it has the key of partition 1 (secagg-key)"}


def left_out_of(settings, configs, rounds=1):
    """Who has no part in the sums of these rounds, which are those of the others."""
    config, plain = settings("on", rounds=rounds), settings("plain", rounds=rounds)
    results, model = run_on(config, Keyed(config, configs))
    assert results[0].train.failures == results[-1].train.failures
    without = dict.fromkeys(("train", "evaluate"), results[0].train.failures)
    assert run_on(plain, Lossy(plain, without))[1] == model
    return results[0].train.failures


@pytest.mark.parametrize(
    ("with_keys", "why"), [(4, "it does not sign its keys"), (1, "too few others sign their keys")]
)
def test_who_signs_is_in_no_sum_with_who_does_not(settings, configs, with_keys, why):
    grid = Keyed(settings("on"), [*configs[:with_keys], *[{}] * (SITES - with_keys)])
    results, _ = run_on(settings("on"), grid)
    left_out = {4} if with_keys == 4 else {0}
    assert results[0].train.failures == dict.fromkeys(left_out, f"secagg: {why} (secagg-key)")
    assert set(results[0].train.metrics) == set(range(SITES)) - left_out


def test_a_mistake_in_a_node_config_is_one_line_at_the_site_and_one_at_the_server(settings, tmp_path, caplog):
    """Each of these sites, and one that demands more, trains not and has no part in the sum of the others."""
    here = {"secagg-key": "/no/such", "secagg-partners": str(tmp_path)}
    (tmp_path / "note").write_text("no key\n")
    own = str(written_pair(Ed25519PrivateKey.generate(), tmp_path / "own", "own"))
    mistakes = [
        ({"secagg-required": True, "secagg-min": 4}, "secagg-min: 3 is not allowed at this site; expected"),
        ({"secagg-min": 1}, "secagg-min: 1 is not allowed; expected a whole number from 2 on"),
        ({"secagg-min": "abc"}, "secagg-min: 'abc' is not allowed; expected a whole number from 2 on"),
        ({"secagg-required": "perhaps"}, "secagg-required: 'perhaps' is not allowed; expected true or false"),
        ({"secagg-max": 3}, "node-config: unknown name 'secagg-max'"),
        (here, "secagg-key: 'such' is not allowed; expected a private key"),
        ({**here, "secagg-key": own}, "secagg-partners: "),
        ({"secagg-key": own}, "secagg-key: 'own' is not allowed; expected a secagg-partners beside it"),
        ({"dp-max-clip": "wide"}, "dp-max-clip: 'wide' is not allowed; expected a number > 0 in the node"),
    ]  # fmt: skip
    config = settings("on", num_clients=3 + len(mistakes), secagg_threshold=0)
    grid = Keyed(config, [{}, {}, {}, *(given for given, _ in mistakes)])
    results, _ = run_on(config, grid)
    failures = results[0].train.failures
    assert list(results[0].train.metrics) == [0, 1, 2]
    assert {place for step, place, *_ in grid.carried if step == "train"} == {0, 1, 2}
    for place, (_, why) in enumerate(mistakes, 3):
        assert why in failures[place]
        assert f"round 1, train: partition {place} dropped: {failures[place]}" in caplog.messages
    assert "note has something else" in failures[9]
    lines = [record for record in caplog.records if record.getMessage().startswith("refused: ")]
    assert not any(record.exc_info or "\n" in record.getMessage() for record in lines)
    for _, why in mistakes[:5]:
        assert any(f"refused: {why}" in record.getMessage() for record in lines)
    assert not [record for record in caplog.records if record.exc_info]
    private = settings("on", dp="client", dp_noise=1.0, dp_delta=1e-3, dp_clip=1.0, clip_update_norm=0.0)
    for run, own, why in (
        (config, {"secagg_min": 3}, "node-config: unknown name 'secagg_min' (did you mean 'secagg-min'?)"),
        (private, {"secagg-min": 1}, "secagg-min: 1 is not allowed; expected a whole number from 2 on"),
    ):
        context = node_context(0, 5, run.to_user_config())
        context.node_config = {**context.node_config, **own}
        asked = RecordDict({SECAGG: ConfigRecord({words.STEP: ADVERTISE}), "config": ConfigRecord({})})
        assert why in app(Message(asked, context.node_id, "evaluate"), context).error.reason
