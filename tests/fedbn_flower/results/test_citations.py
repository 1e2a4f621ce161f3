"""Citations: what each class names, and the bibliography."""

import re

import pytest

from clients import METRICS, PROBLEMS
from fedbn_flower.config.making import run_config
from fedbn_flower.config.named_algorithms import NAMED
from fedbn_flower.core.methods import paper_of
from fedbn_flower.extensions import built_in
from fedbn_flower.extensions.annex_keys import ATTACKS
from fedbn_flower.models.norms import NORMS
from fedbn_flower.results.report.citations import FLOWER, OF_KEYS, citations, entries, source
from strategies import CODECS, SELECTIONS, FedYogi
from strategies.aggregation.buffers import PROTOCOLS
from strategies.aggregation.named_means import MEANS

from .written import CONFIG


def test_every_paper_that_a_class_names_is_in_the_bibliography_and_no_other():
    named = {
        paper_of(cls)
        for table in (*NAMED.values(), PROBLEMS, METRICS, MEANS, NORMS, SELECTIONS, CODECS, PROTOCOLS)
        for cls in table.values()
    } - {""}
    config = run_config({}).to_user_config()
    config |= {"adapt-bn": True, "secagg": "on", "attack": "+".join(ATTACKS)}
    of_extensions = {key for cls in built_in(config) for key in cls.about(config).papers}
    others = {FLOWER, *OF_KEYS.values(), *of_extensions}
    assert named | others == entries().keys()


def cited(**keys):
    found = citations([CONFIG | {key.replace("_", "-"): value for key, value in keys.items()}])
    return re.findall(r"^@\w+\{(.*),$", found, re.MULTILINE)


def test_cited_are_the_algorithms_that_ran():
    of_own = ["beutel2020flower", "li2021fedbn", "arivazhagan2019fedper", "yin2018byzantine"]
    assert cited(client="fedbn+fedper", strategy="my.py:Rule", mean="median") == of_own
    of_named = {"beutel2020flower", "reddi2021adaptive", "mcmahan2017fedavg", "li2020fedprox", "lin2017focal"}
    assert set(cited(client="shared", objective="fedprox", loss="focal", model="linear")) == of_named


@pytest.mark.parametrize(
    ("key", "value", "papers"),
    [
        ("mean", "weighted", set()), ("mean", "multi-krum:1,2", {"blanchard2017krum"}),
        ("protocol", "sync", set()), ("protocol", "fedasync:hinge:1:2", {"xie2019fedasync"}),
        ("secagg", "off", set()), ("attack", "label-flip", set()), ("attack", "none", set()),
        ("attack", "backdoor:3+replacement:5", {"gu2017badnets", "bagdasaryan2020backdoor"}),
    ],
)  # fmt: skip
def test_a_key_cites_its_papers(key, value, papers):
    assert set(cited(**{key: value})) - set(cited()) == papers


@pytest.mark.parametrize("mode", ["plain", "on"])
def test_cited_is_secure_aggregation(mode):
    text = citations([CONFIG | {"secagg": mode}])
    for link in ("eprint.iacr.org/2017/281", "eprint.iacr.org/2020/704", "2102.06387"):
        assert link in text


def test_a_class_names_the_paper_of_its_own_method():
    class Faster(FedYogi):
        eta = 0.1

    class Kept(FedYogi):
        paper = FedYogi.paper

    named = [paper_of(cls) for cls in (FedYogi, Faster, Kept)]
    assert named == ["reddi2021adaptive", "", "reddi2021adaptive"]


def test_a_paper_in_a_table_of_the_docs():
    assert source("hsu2019measuring") == "[Hsu et al. 2019](https://arxiv.org/abs/1909.06335)"
    assert source("li2021fedrs") == "Li and Zhan 2021"
    with pytest.raises(KeyError, match="paper 'nobody1900' has no entry in .*papers.md"):
        source("nobody1900")
