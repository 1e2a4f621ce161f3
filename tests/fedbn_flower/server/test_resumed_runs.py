"""A run that stopped goes on to the bits of one that never did, whatever it keeps from round to round.

Every two names of algorithms, where all clients answer: `test_resume` of results.
"""

import pytest

from .test_participation import MIXED
from .test_personal_runs import CLIENTS, OBJECTIVES, UNIONS, keys_of
from .test_robust_runs import KEYS as ROBUST
from .test_robust_runs import MEANS
from .test_rules_in_runs import RULES
from .test_several_models import SETTINGS

PARTLY = {"num_clients": 6, "partition": "dirichlet:1", "fraction_train": 0.5, "dropout": 0.3}
RUN = {"dataset": "scanners", "client": "shared", "num_clients": 4, "fraction_train": 0.75, "dropout": 0.2}
CASES = {
    **{
        rule: {"strategy": rule, "client": ("fedbn", "shared")[i % 2], "model": "mlp-bn"} | keys
        for i, (rule, keys) in enumerate(RULES.items())
    },
    **{name: keys_of(name) for name in (*CLIENTS, *UNIONS, *OBJECTIVES)},
    "fixbn": {"client": "fixbn", "strategy": "fedavg", "fix_from": 2},
    "fbn": {"client": "fbn", "strategy": "fedyogi"},
    "hbn": {"client": "hbn", "strategy": "fedavg"},
    "adapt-bn": {"client": "shared", "strategy": "fedavg", "adapt_bn": True},
    **{mean: ROBUST | {"mean": mean, "fraction_train": 0.7, "dropout": 0.2} for mean in MEANS},
    **{rule: {"strategy": rule} | RUN | keys for rule, keys in SETTINGS.items()},
    "a head of each client": {"strategy": "ifca"} | RUN | SETTINGS["ifca"] | {"client": "fedper"},
    **{
        f"{rule} among devices": {"strategy": rule, "objective": rule, "partition": "iid", "num_clients": 5}
        | {"dropout": 0.0, "fraction_train": 1.0}
        | MIXED
        for rule in ("scaffold", "feddyn")
    },
    **{
        f"the best of {rule}": {"strategy": rule, "model": "mlp-bn", "val_fraction": 0.2, "patience": 5}
        | RULES[rule]
        for rule in ("fedexp", "fedacg")
    },
}
QUICK = {"fedbn+apfl", "adapt-bn"}
EXHAUSTIVE = {*RULES, *CLIENTS, *UNIONS, *OBJECTIVES, *MEANS} - QUICK - {"centered-clip:0.2"}


def outcome(result):
    """What every client found in every round, to the last bit, and every model of the folder."""
    files = [*result.folder.glob("*.safetensors"), *(result.folder / "models").glob("*")]
    tables = result.clients.drop(columns=[name for name in result.clients if "seconds" in name])
    whole = {name: result.summary.get(name) for name in ("clients", "global", "mean", "failures")}
    return {path.name: path.read_bytes() for path in files}, tables.to_csv(), whole


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[]
            if name in QUICK
            else getattr(pytest.mark, "exhaustive" if name in EXHAUSTIVE else "slow"),
        )
        for name in CASES
    ],
)
def test_three_rounds_of_which_answers_are_lost_also_resumed(run, name):
    keys = PARTLY | CASES[name]
    whole = run(**keys, rounds=3, run_dir="whole")
    assert whole.summary["failures"] == 0
    assert 3 <= len(whole.clients.query("phase == 'train'")) < 3 * keys["num_clients"]
    run(**keys, rounds=2, run_dir="parts")
    assert outcome(run(resume="parts", rounds=3)) == outcome(whole)
