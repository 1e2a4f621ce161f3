"""The page *What a site can do to you*: what comes of each lie, with and without the options that help."""

import json

import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord

from fedbn_flower.core.ground.wire import DIGESTS_OF_NAMES
from fedbn_flower.server.questions import check_names
from strategies.expected import ExpectedMetrics, FurtherNames

from ...docs.pages import DOCS
from .hostile import BELIEVED, LIES, REFUSED, asking, control, sites, table, train
from .hostile_rules import BY_RULE, by_rule
from .hostile_rules import table as table_of_rules

PAGE = DOCS / "what-a-site-can-do.md"


@pytest.mark.parametrize("phase", LIES)
def test_the_page_has_the_table(phase):
    assert f"## {phase}\n\n{table(phase)}" in PAGE.read_text()


@pytest.mark.parametrize(
    ("happens", "lie", "effect", "options"),
    [pytest.param(*lie, id=f"{phase}: {name}") for phase, lies in LIES.items() for name, *lie in lies],
)
def test_it_is_what_the_page_says(happens, lie, effect, options):
    assert happens(lie) == effect
    for option in options:
        assert happens(lie, option) != BELIEVED


def test_the_honest_are_believed():
    for phase, lies in LIES.items():
        happens = lies[-1][1]
        assert happens(lambda content: content) != REFUSED, phase


@pytest.mark.parametrize(("said", "sent"), [({}, []), ({"classes": ["well", "ill"]}, [DIGESTS_OF_NAMES])])
def test_where_classes_have_no_names_sites_are_sent_no_digests(said, sent):
    grid = sites(lambda node: {"names": ConfigRecord({"names": json.dumps(said)})}, lambda content: content)
    assert list(check_names(*asking(""), grid)) == sent


def test_the_page_has_what_single_rules_read():
    assert f"## What single rules read\n\n{table_of_rules()}" in PAGE.read_text()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("rule", "lie", "effect"), [pytest.param(*lie, id=f"{lie[0]}: {what}") for what, *lie in BY_RULE]
)
def test_what_a_rule_reads_is_refused_or_believed(rule, lie, effect, cache_dir):
    """The liar is first, a refused one costs nobody else anything, and whatever comes of it is finite."""
    assert by_rule(rule, cache_dir)(lie) == effect


def test_the_clip_is_of_the_model_and_not_of_scaffolds_control():
    assert train(control, rule="scaffold") == train(control, "--clip-update-norm", "scaffold") == BELIEVED
    assert train(control, "--mean median", "scaffold") != BELIEVED
    assert train(lambda content: content, rule="scaffold") != BELIEVED


def test_a_new_name_a_round_is_not_a_column_a_round(caplog):
    """Ten rounds' new names are taken, then no more, with one line; names that are known go on."""
    names, expected = FurtherNames(), ExpectedMetrics(most=100)
    kept = []
    for server_round in range(1, 1001):
        metrics = MetricRecord({"m0": 1, f"m{server_round}": 2})
        names.admit(server_round, metrics, expected)
        kept.append(sorted(metrics))
    assert kept[0] == ["m0", "m1"]
    assert kept[9] == ["m0", "m10"]
    assert kept[10:] == [["m0"]] * 990
    assert [r.getMessage() for r in caplog.records] == [
        "round 11: the metric 'm11' is left out, and so is every new one: clients have reported 11 beyond "
        "those of the run, new ones in 10 rounds"
    ]
    many = MetricRecord({f"n{i}": 1 for i in range(300)})
    FurtherNames().admit(1, many, expected)
    assert len(many) == 200
    assert np.isinf(ExpectedMetrics().most)
