"""What does not go with client-level privacy, in one line each; and what is warned of."""

import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.names import APP
from fedbn_flower.privacy import accounts
from fedbn_flower.server.federation import Federation

from ..records.helpers import rows_of
from .runs import DP, MANY, private, simulated

PLATEAU = f"{APP}/examples/plateau.py:Plateau"


CYCLIC = {"dp_sampling": "cyclic"}
BOUNDS = "a number in [1e-09, 1e+09]"
OF_A_TURN = "1 over a whole number up to 20 with dp-sampling 'cyclic'"
NOT_METRICS = "since clients' metrics would decide what is published,"
OF_THE_MEAN = "a rule that declares post_processes_mean = True"
GROUP_NORM = (
    "'silobn' or 'fedbn', or a model with GroupNorm, with dp {dp!r}: it would share the BatchNorm statistics "
    "of 'mlp-bn', such as 2.num_batches_tracked"
)
NOT_EXAMPLE_WISE = "another one with dp 'example': objective {} does not set `example_wise`"
ANY = [
    ({"dp_epsilon": 0, "dp_noise": 0}, "a number > 0, or a dp-noise > 0,"),
    ({"dp_noise": 1.0, "dp_epsilon": 3}, "0, since dp-epsilon is given,"),
    ({"normalize": True}, "false, since its means are of all training data,"),
    ({"patience": 2, "val_fraction": 0.2}, f"0, {NOT_METRICS}"),
    ({"stop_at_target": True, "target": "accuracy=0.9"}, f"false, {NOT_METRICS}"),
]
CLIENT = [
    *ANY,
    ({"dp_metrics": 1.0}, "0, since the server is trusted with metrics,"),
    ({"dp": "server"}, "one of 'none', 'client', 'local', 'example'"),
    ({"dp_epsilon": 2e9, "dp_noise": 0}, BOUNDS),
    ({"dp_delta": 0}, "a number from 1e-15 on, below 1/num-clients (0.05),"),
    ({"dp_clip": "-1"}, "a number > 0, or adaptive"),
    ({"dp_clip": "nan"}, "a number > 0, or adaptive"),
    ({"dp_clip": "adaptive", "dp_noise": 3}, "a number: with noise 3 it needs more than 30 clients a round"),
    ({"dp_clip": "adaptive", **CYCLIC}, "a number with dp-sampling 'cyclic'"),
    ({"fraction_train": 0.5, "dp_sampling": "all"}, "1.0 with dp-sampling 'all'"),
    ({"fraction_train": 0.4, **CYCLIC}, OF_A_TURN),
    ({"fraction_train": 0.04, **CYCLIC}, OF_A_TURN),
    ({"dp_bands": 3, **CYCLIC}, "at most 2, the groups that take turns,"),
    ({"dp_bands": 3}, "0 with dp-sampling 'poisson'"),
    ({"dp_sampling": "fixed", "dp_secure_noise": True}, "'poisson' or 'all' with dp-secure-noise"),
    ({"dp_sampling": "cyclic", "dp_secure_noise": True}, "'poisson' or 'all' with dp-secure-noise"),
    (
        {"dp_noise": 1e-9, "dp_secure_noise": True},
        "more than 2.3e-09 with dp-secure-noise: sums of 20 clients would not be exact",
    ),
    (
        {"dp_secure_noise": True, "dp_noise": 2500.0},
        "false: rounding 9610 parameters would take 0.12 of dp-clip",
    ),
    (
        {"dp_simulate_population": 1000, **CYCLIC, "dp_simulate_cohort": 100},
        "200, dp-simulate-cohort times the groups that take turns,",
    ),
    ({"dp_simulate_population": 100}, "0 without dp-simulate-cohort"),
    ({"dp_simulate_cohort": 5}, "at least 10, the clients of a round,"),
    ({"dp_simulate_cohort": 500}, "at most dp-simulate-population"),
    ({"weighting": "num-examples"}, "'uniform', since the sum of the weights is private,"),
    ({"mean": "median"}, "'weighted', since one client can move another mean further than its clip,"),
    ({"clip_update_norm": 1.0}, "0 (dp-clip is that bound)"),
    ({"min_replies": 2}, "1, since a round left out would tell how many answered,"),
    (
        {"extension": PLATEAU},
        "one that declares published_only = True, since clients' metrics could decide what is published,",
    ),
    ({"strategy": "fednova", "client": "fedbn"}, OF_THE_MEAN),
    *(
        ({"strategy": name, "objective": name, "client": "fedbn"}, OF_THE_MEAN)
        for name in ("scaffold", "scaffold-momentum", "fedproto", "fedsat")
    ),
    ({"client": "shared"}, GROUP_NORM),
]
LOCAL = [
    ({"dp_metrics": 2e9}, BOUNDS),
    ({"dp_clip": "adaptive"}, "a number > 0"),
    ({"dp_secure_noise": True}, "false, since clients add the noise,"),
    ({"dp_sampling": "fixed"}, "'poisson', since no sampling hides a client from who reads its messages,"),
    ({"dp_simulate_cohort": 9}, "0, since no sampling hides a client from who reads its messages,"),
    ({"weighting": "num-examples"}, "'uniform', since a client's number of examples is its own,"),
    ({"strategy": "fednova"}, OF_THE_MEAN),
    ({"dp_delta": 0}, "a number from 1e-15 on, below 1/num-clients (0.25),"),
    ({"client": "shared", "model": "mlp-bn"}, GROUP_NORM),
]
EXAMPLE = [
    *ANY,
    ({"dp_metrics": 1e-300}, BOUNDS),
    ({"dp_delta": 0}, "a number from 1e-15 on, below 1/examples,"),
    ({"dp_clip": "adaptive"}, "a number > 0"),
    ({"dp_secure_noise": True}, "false, since clients add the noise,"),
    ({"dp_sampling": "all"}, "'poisson', since not clients are protected,"),
    ({"dp_simulate_cohort": 50}, "0, since not clients are protected,"),
    ({"precision": "fp16"}, "'fp32'"),
    (
        {"model": "mlp-bn", "client": "fedbn"},
        "one with GroupNorm, such as 'simple-cnn-gn' or by norm 'group:G', with dp 'example': BatchNorm "
        "mixes examples, as in the layer '2'",
    ),
    *(
        ({"client": name}, "one of fedbn, fedper, shared, silobn, or some of these")
        for name in (
            *("fedrep", "fedbabu", "lg-fedavg", "ditto", "alone"),
            *("apfl", "pfedme", "per-fedavg", "fedala", "fedrod", "knn-per"),
        )
    ),
    *(
        ({"objective": name.lower(), "strategy": "fedavg"}, NOT_EXAMPLE_WISE.format(name))
        for name in ("FedSAM", "FedRS", "FedLC", "FedDecorr", "FedSpeed")
    ),
    *(
        ({"objective": key, "strategy": key}, NOT_EXAMPLE_WISE.format(name))
        for key, name in (
            *(("fedsmoo", "FedSMOO"), ("fedproto", "FedProto"), ("fedsat", "FedSat")),
            ("scaffold-momentum", "ScaffoldMomentum"),
        )
    ),
]
REFUSED = {"client": CLIENT, "local": LOCAL, "example": EXAMPLE}
"""By notion, keys, of which the first is refused, and what is expected of it."""


@pytest.mark.parametrize(
    ("notion", "keys", "expected"), [(notion, *case) for notion in REFUSED for case in REFUSED[notion]]
)
def test_what_is_refused_in_one_line(configured, notion, keys, expected):
    key, value = next(iter(keys.items()))
    with pytest.raises(UserError) as error:
        Federation(private(configured, notion, **({"model": "2nn"} if notion == "example" else {}) | keys))
    found = f"{value!r} is not allowed" if value else "missing"
    line = f"{key.replace('_', '-')}: {found}; expected {expected.format(dp=notion)}"
    assert str(error.value) in (line, f"{line} with dp {notion!r}")


@pytest.mark.parametrize(
    "key",
    [
        "dp_epsilon",
        "dp_delta",
        "dp_noise",
        "dp_clip",
        "dp_sampling",
        "dp_bands",
        "dp_seed",
        "dp_secure_noise",
    ],
)
def test_a_key_of_privacy_without_it_is_a_mistake(configured, key):
    values = {"dp_clip": "adaptive", "dp_sampling": "all"}
    flag = key.replace("_", "-")
    with pytest.raises(
        UserError, match=f"^{flag}: .* is not used without dp; give dp=client, example or local$"
    ):
        configured(**{key: values.get(key, 1)} if key != "dp_delta" else {key: 0.1})


# ---- what is warned of ------------------------------------------------------------------------------


def notices(configured, notion="client", **values):
    return list(Federation(private(configured, notion, **values)).privacy.notices())


@pytest.mark.parametrize(
    ("notion", "least", "great"),
    [("client", "1/num-clients, 0.05", 0.1), ("local", "1/num-clients", 0.3), ("example", "", 0.1)],
)
def test_a_delta_that_is_too_great_and_a_public_key_are_warned_of(configured, notion, least, great):
    found = notices(configured, notion, dp_delta=great)
    assert found[0].startswith(f"dp-delta: {great} is above {least}")
    assert found[-1].startswith("dp-seed: its key is public")
    fine = notices(configured, notion, dp_seed=-1, dp_noise=0.5)
    assert not fine


@pytest.mark.parametrize(
    ("notion", "clients", "parameters", "share"), [("client", 10, 9610, "0.051"), ("local", 4, 650, "0.039")]
)
def test_noise_that_drowns_everything_is_warned_of(configured, notion, clients, parameters, share):
    """The clients of a round over noise 2 and the root of the shared parameters; with less noise more."""
    assert not any("drowns" in one for one in notices(configured, notion, dp_noise=0.7))
    (line,) = (one for one in notices(configured, notion, dp_noise=2.0) if "drowns" in one)
    of = f"the root of {clients}" if notion == "local" else clients
    assert f"{of} clients a round over noise 2 times the root of {parameters} parameters is {share}" in line


@pytest.mark.slow
def test_a_simulated_and_a_hypothetical_epsilon_are_called_so(configured, tmp_path):
    values = {"dp_simulate_cohort": 1000, "dp_simulate_population": 10**6}
    assert any("epsilon is hypothetical" in one for one in notices(configured, **values))
    found = simulated(configured(**{**MANY, **DP, **values}), tmp_path / "run")["privacy"]
    assert found["claim"] == "hypothetical"
    plan = accounts.Plan("poisson", 1e-3, 10**6, 2, 1e-3)
    assert found["epsilon"] == accounts.epsilon(1.0, plan)
    assert float(rows_of(tmp_path / "run")[0]["noise-std"]) == 1.0 / 1000


def test_a_reference_run_has_no_privacy(configured):
    config = configured(**{**MANY, **DP, "reference": "pooled"})
    assert (config.dp, config.weighting) == ("none", "num-examples")


TIED = """
import torch
from torch import nn

def tied(spec):
    first, second = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
    second.weight = first.weight
    return nn.Sequential(nn.Flatten(), nn.Linear(spec.size, 8), first, second, nn.Linear(8, spec.outputs))
"""


def test_a_tied_parameter_counts_once(configured, tmp_path):
    """64 inputs to 8, 8 x 8 under two names, 8 to 10 outputs: 520 + 64 + 90 numbers, by all of which noise is
    judged."""
    (tmp_path / "tied.py").write_text(TIED)
    values = {**MANY, **DP, "model": f"{tmp_path / 'tied.py'}:tied", "client": "shared"}
    assert Federation(configured(**values)).privacy.parameters == 64 * 8 + 8 + 8 * 8 + 8 * 10 + 10
