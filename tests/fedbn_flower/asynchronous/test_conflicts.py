"""The keys of asynchronous protocols: what goes together, and every mistake."""

import pytest

from fedbn_flower.asynchronous.extension import NEUTRAL
from fedbn_flower.config.keys import RUN_KEYS
from fedbn_flower.config.making import run_config
from fedbn_flower.core.errors import UserError

FOUR = {"num-clients": 4, "partition": "iid"}
ASYNC = {"protocol": "fedbuff:2", "concurrency": 3, "devices": "uniform", **FOUR}


@pytest.mark.parametrize(
    ("values", "output"),
    [
        ({"protocol": "fedbuff"}, "protocol: 'fedbuff' is not allowed; expected sync, fedbuff:K"),
        (ASYNC | {"protocol": "fedbuff:5"}, "protocol: 'fedbuff:5' is not allowed; expected a buffer of at"),
        ({"concurrency": 2}, "concurrency: 2 is not allowed; expected 0 with protocol 'sync'"),
        (ASYNC | {"concurrency": 0}, "concurrency: missing; expected from 1 to 4, the"),
        (ASYNC | {"concurrency": 4, "holdout-clients": 1}, "concurrency: 4 is not allowed; expected from 1"),
        ({"mixing": 0.5}, "mixing: 0.5 is not allowed; expected 0.6, its default, with protocol 'sync'"),
        (ASYNC | {"mixing": 0.5}, "mixing: 0.5 is not allowed; expected 0.6, its default, with "),
        (
            ASYNC | {"devices": "none", "eval-model": "local"},
            "eval-model: 'local' is not allowed; expected 'aggregated' without devices, since no client",
        ),
        (ASYNC | {"round-deadline": 3}, "round-deadline: 3.0 is not allowed; expected 0, since no answer"),
        (ASYNC | {"min-replies": 3}, "min-replies: 3 is not allowed; expected at most 2"),
        (
            ASYNC | {"strategy": "scaffold", "objective": "scaffold"},
            "strategy: 'scaffold' is not allowed; expected a rule that uses nothing but the mean",
        ),
        (ASYNC | {"strategy": "fednova"}, "strategy: 'fednova' is not allowed; expected a rule that"),
        (
            ASYNC | {"dp": "client", "dp-epsilon": 8, "dp-delta": 1e-3},
            "dp: 'client' is not allowed; expected 'none', since an answer's weight",
        ),
        (ASYNC | {"dataset": "shape:1x8x8:10"}, "devices: 'uniform' is not allowed; expected none with"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_line(values, output):
    with pytest.raises(UserError) as caught:
        run_config(values)
    assert str(caught.value).startswith(output)
    assert "\n" not in str(caught.value)


def test_a_reference_has_rounds():
    assert run_config(ASYNC | {"reference": "alone"}) == run_config(FOUR | {"reference": "alone"})


def test_clients_weigh_alike_unless_said():
    assert run_config(ASYNC).weighting == "uniform"
    assert run_config(ASYNC | {"weighting": "num-examples"}).weighting == "num-examples"


def test_what_is_neutral_are_the_defaults():
    assert {key: value for key, (value, _) in NEUTRAL.items()} == {k: RUN_KEYS[k].default for k in NEUTRAL}
    assert {*NEUTRAL} == {
        *("fraction-train", "selection", "round-deadline", "over-select", "stragglers", "dropout"),
        *("availability", "compress-down", "unfreeze-at"),
    }
