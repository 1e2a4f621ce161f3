"""Whole runs in which groups take turns: who trains, what it costs, and which resume is refused."""

import pytest
from flwr.app import Message, RecordDict

from fedbn_flower.core.errors import RunFailed, UserError
from fedbn_flower.core.ground.columns import PRIVACY
from fedbn_flower.privacy import accounts, keys
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation

from ..records.helpers import Watching, rows_of
from .runs import DP, LINEAR, MANY, charges, cut, resume, simulated

TURNS = {**MANY, **LINEAR, **DP, "dp_sampling": "cyclic", "fraction_train": 0.25, "rounds": 6}


@pytest.mark.slow
def test_groups_take_turns_and_pay_for_their_own_rounds(configured, tmp_path):
    """Of six rounds each of four groups has two at most, and two rounds cost what all clients twice do."""
    trained, config = [], configured(**TURNS)
    watching = Watching(lambda result: trained.append(sorted(result.train.metrics)))
    summary = simulate(Federation(config), tmp_path / "run", None, [watching]).as_json()["privacy"]
    assert trained == [list(range((t - 1) % 4, 20, 4)) for t in range(1, 7)]
    once, twice = (accounts.epsilon(1.0, accounts.Plan("all", 1, 20, k, 1e-3)) for k in (1, 2))
    found = [{name: float(row[name]) for name in PRIVACY} for row in rows_of(tmp_path / "run")]
    assert [row["epsilon"] for row in found] == [once] * 4 + [twice] * 2
    # By hand: the first of five clients' means has z C / 5 over M_11, the length of (1, 1/2, 3/8, 5/16).
    length = (1 + 1 / 4 + 9 / 64 + 25 / 256) ** 0.5
    assert found[0]["noise-std"] == pytest.approx(length / 5)
    assert {k: summary[k] for k in ("sampling", "groups", "bands", "epsilon", "adjacency")} == {
        "sampling": "cyclic", "groups": 4, "bands": 4, "epsilon": twice, "adjacency": "add-or-remove-one",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("bands", "change", "line"),
    [
        (0, "rounds", r"rounds: 9 is not allowed; expected at most 6: noise is correlated over the rounds"),
        (0, "key", r"resume: round 3 is published, and cannot be repeated to the same bits"),
        (1, "key", r"resume: round 3 is published, and cannot be repeated to the same bits"),
    ],
)
def test_turns_that_nobody_accounted_are_refused(configured, tmp_path, bands, change, line):
    config = configured(**{**TURNS, "dp_bands": bands, "dp_seed": -1, "checkpoint_every": 2})
    cut(config, tmp_path / "run", 3)
    if change == "key":
        (tmp_path / "run" / "checkpoint" / keys.NAME).unlink()
    with pytest.raises(UserError, match=line):
        simulated(resume(config, tmp_path / "run", rounds=9 if change == "rounds" else 6), tmp_path / "run")


def test_a_lost_key_ends_correlated_noise_but_not_independent_one(configured, tmp_path):
    for bands in (2, 1):
        folder = tmp_path / str(bands)
        config = configured(**{**TURNS, "dp_bands": bands, "dp_seed": -1, "rounds": 2})
        simulated(config, folder)
        assert not (folder / "checkpoint" / keys.NAME).exists()  # destroyed, since the run is complete
        more = resume(config, folder, rounds=3)
        if bands == 2:
            with pytest.raises(UserError, match="resume: the key is lost, and further noise correlates"):
                simulated(more, folder)
        else:
            assert simulated(more, folder)["privacy"]["published"] == 3


def test_turns_are_counted_in_the_ledger(configured, tmp_path):
    """Each round has the clients of its group; one that has had its turn of a cycle has no other in it."""
    folder, config = tmp_path / "run", configured(**{**TURNS, "checkpoint_every": 2})
    cut(config, folder, 2)
    assert [charge["clients"] for charge in charges(folder)] == [[0, 4, 8, 12, 16], [1, 5, 9, 13, 17]]
    path = folder / "privacy.jsonl"
    path.write_text(path.read_text().replace("[1, 5, 9, 13, 17]", "[1, 2, 5, 9, 13, 17]"))
    line = (
        "privacy: client 2 has had 1 turns before round 3, in which 1 are accounted for a "
        "client; begin a new run"
    )
    with pytest.raises(RunFailed, match=line):
        simulated(resume(config, folder), folder)


def test_a_site_without_a_partition_takes_no_turn(configured):
    """Its node id, which is new whenever it starts, would be its group."""
    federation = Federation(configured(**TURNS))
    assert federation.strategy.node_directory.needed_by == "dp-sampling cyclic"

    class Nameless(InlineGrid):
        def work(self, messages, timeout):
            for message, reply in zip(messages, super().work(messages, timeout), strict=True):
                asked = message.metadata.message_type.startswith("query")
                yield Message(RecordDict(), reply_to=message) if asked else reply

        partition_of_node = None

    with pytest.raises(
        (RunFailed, UserError), match="has no partition-id in its node config, and dp-sampling"
    ):
        federation.run(Nameless(20, federation.config.to_user_config()), [])
