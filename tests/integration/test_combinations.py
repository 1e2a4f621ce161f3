"""Combinations of algorithms, in every way that a run is made: the bits of one process."""

import pytest

from fedbn_flower.annexes import ANNEXES, Annex
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation

from ..fedbn_flower.combinations import COVER, EACH, title
from ..fedbn_flower.records.helpers import rows_but_times
from ..fedbn_flower.server.test_one_exchange import memories, outcome
from ..fedbn_flower.supernodes import SuperNodes, run_app

pytestmark = pytest.mark.slow

SMALL = {"partition": "dirichlet:0.5", "num_clients": 5, "fraction_train": 0.6, "fine_tune": 2, "fast": "off"}
THREE = {"rounds": 3, "evaluate_every": 2, "val_fraction": 0.1, "target": "accuracy=0.05"}
PARTNERS = {"fedrep": {"head_epochs": 2}, "fedbn+fedrep": {"head_epochs": 2}, "fixbn": {"fix_from": 3}}
JOINED = [
    {"client": "fedbn+fedper", "eval_model": "aggregated"},
    {"client": "silobn+ditto", "eval_model": "local"},
    {"client": "fedbn+fedrep", "eval_model": "local"},
]
FURTHER = [pytest.param(names, marks=pytest.mark.exhaustive) for names in COVER if names not in EACH]


@pytest.mark.usefixtures("pictures_not_drawn")
@pytest.mark.parametrize("names", [*EACH, *FURTHER, *JOINED], ids=title)
def test_the_same_resumed_on_ray_and_in_one_exchange(configured, tmp_path, monkeypatch, killed, pool, names):
    """Of clients that sat out the last round, too: of five, three train in a round."""
    monkeypatch.setitem(ANNEXES, "study", Annex(""))  # whose intervals only simulations have
    chosen = SMALL | THREE | names | PARTNERS.get(names["client"], {})

    def found(folder):
        run = outcome(folder)
        del run["summary"]["runtime"]
        return run

    def run(folder, place=None, **more):
        simulate(Federation(configured(**chosen, **more)), folder, place)
        return found(folder)

    whole = tmp_path / "whole"
    expected = run(whole)
    assert expected["summary"]["failures"] == 0
    assert run(killed, pool, resume=str(killed)) == expected
    for name in ("metrics.csv", "clients.csv"):  # bytes, too
        assert rows_but_times(killed, name) == rows_but_times(whole, name)
    config = configured(**chosen, run_dir=str(tmp_path / "sites"))
    run_app(config, SuperNodes(config, tmp_path / "states"))
    assert found(tmp_path / "sites") == expected
    assert memories(tmp_path / "states").items() <= memories(whole / "checkpoint").items()
