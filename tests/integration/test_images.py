"""Runs of augmented and of shifted images: the same bits when resumed on Ray."""

import pytest

from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation

from .processes import bits

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("pictures_not_drawn", "few_draws")
def test_the_same_bits_when_resumed_on_ray(configured, tmp_path, pool):
    changed = {"augment": "crop-flip", "feature_shift": "none+inverted+blended"}
    chosen = {"partition": "iid", "num_clients": 3, "local_epochs": 1, **changed}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    simulate(Federation(configured(**chosen, rounds=3)), whole, None)
    simulate(Federation(configured(**chosen, rounds=1)), parts, None)
    simulate(Federation(configured(**chosen, rounds=3, resume=str(parts))), parts, pool)
    assert bits(parts) == bits(whole)
    for key in changed:
        plain = configured(**{**chosen, key: "none"}, rounds=3)
        simulate(Federation(plain), tmp_path / key, None)
        assert bits(tmp_path / key) != bits(whole)
