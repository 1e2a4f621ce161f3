"""What does not go with client-level privacy, in one line each; and what is warned of."""

import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.names import APP
from fedbn_flower.privacy import accounts
from fedbn_flower.server.federation import Federation

from .runs import DP, MANY, private, rows, simulated

PLATEAU = f"{APP}/examples/plateau.py:Plateau"

OWN = """
from strategies import FedAvg

class Own(FedAvg):
    def server_step(self, delta, state, round):
        return delta
"""

CLIENT = {
    "dp: 'server' is not allowed; expected one of 'none', 'client', 'local', 'example'": {"dp": "server"},
    "dp-epsilon: missing; expected a number > 0, or a dp-noise > 0, with dp 'client'": {
        "dp_noise": 0
    },
    "dp-noise: 1.0 is not allowed; expected 0, since dp-epsilon is given, with dp 'client'": {
        "dp_epsilon": 3
    },
    "dp-epsilon: 2000000000.0 is not allowed; expected a number in [1e-09, 1e+09] with dp 'client'": {
        "dp_noise": 0,
        "dp_epsilon": 2e9,
    },
    "dp-metrics: 2000000000.0 is not allowed; expected a number in [1e-09, 1e+09] with dp 'local'": {
        "dp": "local",
        "dp_metrics": 2e9,
    },
    "dp-metrics: 1e-300 is not allowed; expected a number in [1e-09, 1e+09] with dp 'example'": {
        "dp": "example",
        "dp_metrics": 1e-300,
    },
    "dp-delta: missing; expected a number from 1e-15 on, below 1/num-clients (0.05), with dp "
    "'client'": {"dp_delta": 0},
    "dp-clip: '-1' is not allowed; expected a number > 0, or adaptive": {"dp_clip": "-1"},
    "dp-clip: 'nan' is not allowed; expected a number > 0, or adaptive": {"dp_clip": "nan"},
    "dp-clip: 'adaptive' is not allowed; expected a number: with noise 3 it needs more than 30 clients a "
    "round": {"dp_clip": "adaptive", "dp_noise": 3},
    "fraction-train: 0.5 is not allowed; expected 1.0 with dp-sampling 'all' with dp 'client'": {
        "dp_sampling": "all"
    },
    "fraction-train: 0.4 is not allowed; expected 1 over a whole number up to 20 with dp-sampling 'cyclic' "
    "with dp 'client'": {"dp_sampling": "cyclic", "fraction_train": 0.4},
    "fraction-train: 0.04 is not allowed; expected 1 over a whole number up to 20 with dp-sampling 'cyclic' "
    "with dp 'client'": {"dp_sampling": "cyclic", "fraction_train": 0.04},
    "dp-bands: 3 is not allowed; expected at most 2, the groups that take turns, with dp 'client'": {
        "dp_sampling": "cyclic",
        "dp_bands": 3,
    },
    "dp-bands: 3 is not allowed; expected 0 with dp-sampling 'poisson' with dp 'client'": {"dp_bands": 3},
    "dp-clip: 'adaptive' is not allowed; expected a number with dp-sampling 'cyclic' with dp 'client'": {
        "dp_sampling": "cyclic",
        "dp_clip": "adaptive",
    },
    **{
        f"dp-sampling: {sampling!r} is not allowed; expected 'poisson' or 'all' with dp-secure-noise with dp "
        "'client'": {"dp_sampling": sampling, "dp_secure_noise": True}
        for sampling in ("fixed", "cyclic")
    },
    **{
        "dp-secure-noise: True is not allowed; expected false, since clients add the noise, with dp "
        f"{dp!r}": {"dp": dp, "dp_secure_noise": True}
        for dp in ("local", "example")
    },
    "dp-noise: 1e-09 is not allowed; expected more than 2.3e-09 with dp-secure-noise: sums of 20 clients "
    "would not be exact": {"dp_noise": 1e-9, "dp_secure_noise": True},
    "dp-secure-noise: True is not allowed; expected false: rounding 9610 parameters would take 0.12 of "
    "dp-clip": {"dp_noise": 2500.0, "dp_secure_noise": True},
    "dp-simulate-population: 1000 is not allowed; expected 200, dp-simulate-cohort times the groups that "
    "take turns, with dp 'client'": {
        "dp_sampling": "cyclic",
        "dp_simulate_cohort": 100,
        "dp_simulate_population": 1000,
    },
    "weighting: 'num-examples' is not allowed; expected 'uniform', since the sum of the weights is private, "
    "with dp 'client'": {"weighting": "num-examples"},
    "mean: 'median' is not allowed; expected 'weighted', since one client can move another mean further than "
    "its clip, with dp 'client'": {"mean": "median"},
    "clip-update-norm: 1.0 is not allowed; expected 0 (dp-clip is that bound) with dp 'client'": {
        "clip_update_norm": 1
    },
    "min-replies: 2 is not allowed; expected 1, since a round left out would tell how many answered, with dp "
    "'client'": {"min_replies": 2},
    "normalize: True is not allowed; expected false, since its means are of all training data, with dp "
    "'client'": {"normalize": True},
    f"extension: '{PLATEAU}' is not allowed; expected one that declares published_only = True, since "
    "clients' metrics could decide what is published, with dp 'client'": {"extension": PLATEAU},
    "patience: 2 is not allowed; expected 0, since clients' metrics would decide what is published, with dp "
    "'client'": {"patience": 2, "val_fraction": 0.2},
    "stop-at-target: True is not allowed; expected false, since clients' metrics would decide what is "
    "published, with dp 'client'": {"stop_at_target": True, "target": "accuracy=0.9"},
    "dp-simulate-population: 100 is not allowed; expected 0 without dp-simulate-cohort with dp 'client'": {
        "dp_simulate_population": 100
    },
    "dp-simulate-cohort: 5 is not allowed; expected at least 10, the clients of a round, with dp 'client'": {
        "dp_simulate_cohort": 5
    },
    "dp-simulate-cohort: 500 is not allowed; expected at most dp-simulate-population with dp 'client'": {
        "dp_simulate_cohort": 500
    },
    **{
        f"strategy: {name!r} is not allowed; expected a rule that declares post_processes_mean = True with "
        "dp 'client'": {"strategy": name, "objective": objective, "client": "fedbn"}
        for name, objective in (
            ("fednova", "plain"), ("scaffold", "scaffold"), ("scaffold-momentum", "scaffold-momentum"),
            ("fedproto", "fedproto"), ("fedsat", "fedsat"),
        )
    },
    "client: 'shared' is not allowed; expected 'silobn' or 'fedbn', or a model with GroupNorm, with dp "
    "'client': it would share the BatchNorm statistics of 'mlp-bn', such as 2.num_batches_tracked": {
        "client": "shared"
    },
}  # fmt: skip
LOCAL = {
    "dp-clip: 'adaptive' is not allowed; expected a number > 0": {"dp_clip": "adaptive"},
    "dp-sampling: 'fixed' is not allowed; expected 'poisson', since no sampling hides a client from who "
    "reads its messages,": {"dp_sampling": "fixed"},
    "dp-simulate-cohort: 9 is not allowed; expected 0, since no sampling hides a client from who reads its "
    "messages,": {"dp_simulate_cohort": 9},
    "weighting: 'num-examples' is not allowed; expected 'uniform', since a client's number of examples is "
    "its own,": {"weighting": "num-examples"},
    "strategy: 'fednova' is not allowed; expected a rule that declares post_processes_mean = True": {
        "strategy": "fednova"
    },
    "dp-delta: missing; expected a number from 1e-15 on, below 1/num-clients (0.25),": {"dp_delta": 0},
    "client: 'shared' is not allowed; expected 'silobn' or 'fedbn', or a model with GroupNorm, with dp "
    "'local': it would share the BatchNorm statistics of 'mlp-bn', such as 2.num_batches_tracked": {
        "model": "mlp-bn"
    },
}  # fmt: skip
EXAMPLE = {
    "dp-epsilon: missing; expected a number > 0, or a dp-noise > 0, with dp 'example'": {"dp_noise": 0},
    "dp-noise: 1.0 is not allowed; expected 0, since dp-epsilon is given, "
    "with dp 'example'": {"dp_epsilon": 3},
    "dp-delta: missing; expected a number from 1e-15 on, below 1/examples, with dp 'example'": {
        "dp_delta": 0
    },
    "dp-clip: 'adaptive' is not allowed; expected a number > 0 with dp 'example'": {"dp_clip": "adaptive"},
    "dp-sampling: 'all' is not allowed; expected 'poisson', since not clients are protected, "
    "with dp 'example'": {
        "dp_sampling": "all"
    },
    "dp-simulate-cohort: 50 is not allowed; expected 0, since not clients are protected, with dp 'example'": {
        "dp_simulate_cohort": 50
    },
    "precision: 'fp16' is not allowed; expected 'fp32' with dp 'example'": {"precision": "fp16"},
    "normalize: True is not allowed; expected false, since its means are of all training data, "
    "with dp 'example'": {
        "normalize": True
    },
    "patience: 2 is not allowed; expected 0, since clients' metrics would decide what is published, "
    "with dp 'example'": {"patience": 2, "val_fraction": 0.2},
    "stop-at-target: True is not allowed; expected false, since clients' metrics would decide what is "
    "published, with dp 'example'": {"stop_at_target": True, "target": "accuracy=0.9"},
    "model: 'mlp-bn' is not allowed; expected one with GroupNorm, such as 'simple-cnn-gn' or by norm "
    "'group:G', with dp 'example': "
    "BatchNorm mixes examples, as in the "
    "layer '2'": {"model": "mlp-bn", "client": "fedbn"},
    **{
        f"client: {name!r} is not allowed; expected one of fedbn, fedper, shared, silobn, or some of these "
        f"with dp 'example'": {"client": name}
        for name in (
            *("fedrep", "fedbabu", "lg-fedavg", "ditto", "alone"),
            *("apfl", "pfedme", "per-fedavg", "fedala", "fedrod", "knn-per"),
        )
    },
    **{
        f"objective: {key!r} is not allowed; expected another one "
        f"with dp 'example': objective {name} does not set "
        "`example_wise`": {"objective": key, "strategy": rule}
        for key, name, rule in (
            ("fedsam", "FedSAM", "fedavg"), ("fedrs", "FedRS", "fedavg"),
            ("fedlc", "FedLC", "fedavg"), ("feddecorr", "FedDecorr", "fedavg"),
            ("fedspeed", "FedSpeed", "fedavg"), ("fedsmoo", "FedSMOO", "fedsmoo"),
            ("fedproto", "FedProto", "fedproto"), ("fedsat", "FedSat", "fedsat"),
            ("scaffold-momentum", "ScaffoldMomentum", "scaffold-momentum"),
        )
    },
}  # fmt: skip
REFUSED = {"client": CLIENT, "local": LOCAL, "example": EXAMPLE}


@pytest.mark.parametrize(
    ("notion", "line"), [(notion, line) for notion in REFUSED for line in REFUSED[notion]]
)
def test_what_is_refused_in_one_line(configured, notion, line):
    keys = ({"model": "2nn"} if notion == "example" else {}) | REFUSED[notion][line]
    with pytest.raises(UserError) as error:
        Federation(private(configured, notion, **keys))
    end = f"with dp {notion!r}"
    assert str(error.value) == (line if notion != "local" or end in line else f"{line} {end}")


def test_a_rule_from_a_file_has_to_say_what_its_step_is(configured, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    name = f"{tmp_path / 'own.py'}:Own"
    with pytest.raises(UserError, match="expected a rule that declares post_processes_mean = True"):
        configured(**{**MANY, **DP, "strategy": name})


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


def test_without_the_package_that_accounts_one_line_says_how_to_get_it(configured, monkeypatch):
    monkeypatch.setattr(accounts, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^dp: needs another package: pip install 'fedbn-flower\[dp\]'$"):
        Federation(configured(**{**MANY, **DP}))


def test_a_network_without_batch_norm_can_be_shared_whole(configured, tmp_path):
    config = configured(**{**MANY, **DP, "client": "shared", "model": "2nn", "rounds": 1})
    assert simulated(config, tmp_path / "run")["privacy"]["published"] == 1


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
    assert float(rows(tmp_path / "run")[0]["noise-std"]) == 1.0 / 1000


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
