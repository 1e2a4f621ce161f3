"""Runs of losses, objectives and clients of ours: which train in lockstep, and to what."""

import logging

import pytest

from fedbn_flower.core.process_cache import clear_process_caches
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.cohorts import cohort_size
from strategies.aggregation.fold import GROUP
from tests.quick import some_quick

from ..server.test_losses import model_of, same


@pytest.fixture
def many(configured):
    clear_process_caches()

    def make(**values):
        return configured(
            **{"client": "shared", "partition": "iid", "num_clients": 2 * GROUP, "rounds": 1} | values
        )

    return make


@pytest.mark.parametrize(
    ("values", "together", "told"),
    [
        ({"loss": "focal"}, GROUP, "in lockstep"),
        ({"loss": "label-smoothing", "objective": "fedprox"}, GROUP, "in lockstep"),
        ({"loss": "class-balanced"}, 1, "loss ClassBalanced does not set `alike`"),
        ({"loss": "logit-adjusted"}, 1, "loss LogitAdjusted does not set `alike`"),
        ({"objective": "moon"}, 1, "objective Moon does not set `elementwise`"),
        ({"objective": "fedrs"}, 1, "objective FedRS does not set `elementwise`"),
        ({"objective": "fedlc"}, 1, "objective FedLC does not set `elementwise`"),
        ({"objective": "feddecorr"}, 1, "objective FedDecorr does not set `elementwise`"),
        ({"objective": "fedsam"}, 1, "objective FedSAM does not set `elementwise`"),
        ({"objective": "fedntd"}, 1, "objective FedNTD does not set `elementwise`"),
        ({"objective": "fedgkd"}, 1, "objective FedGKD does not set `elementwise`"),
        ({"objective": "fedspeed"}, 1, "objective FedSpeed does not set `elementwise`"),
        ({"objective": "fedsmoo", "strategy": "fedsmoo"}, 1, "objective FedSMOO does not set `elementwise`"),
        ({"client": "knn-per"}, GROUP, "in lockstep"),
        ({"client": "apfl"}, 1, "client APFLClient overrides"),
        ({"client": "pfedme"}, 1, "client PFedMeClient overrides"),
        ({"client": "per-fedavg"}, 1, "client PerFedAvgClient overrides"),
        ({"client": "fedala"}, 1, "client FedALAClient overrides"),
        ({"client": "fedrod"}, 1, "client FedRoDClient overrides"),
    ],
)
def test_who_trains_in_lockstep(many, caplog, values, together, told):
    caplog.set_level(logging.INFO, "flwr.fedbn")
    assert cohort_size(inputs_of(many(**values))) == together
    assert told in caplog.text


@pytest.mark.parametrize("loss", some_quick(["focal", "label-smoothing"], {0}))
def test_lockstep_gives_what_one_by_one_gives(many, tmp_path, loss):
    models = []
    for fast in ("auto", "off"):
        assert simulate(Federation(many(loss=loss, fast=fast)), tmp_path / fast, None).failures == 0
        models.append(model_of(tmp_path / fast))
    assert same(*models, atol=1e-5)
