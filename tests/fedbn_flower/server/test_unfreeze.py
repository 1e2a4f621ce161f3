"""From a round on, what was frozen trains: it travels, and state and memories grow."""

import numpy as np
import pytest
import torch
from flwr.serverapp.exception import AggregationError
from safetensors import safe_open
from safetensors.numpy import save_file

from fedbn_flower.core.input_spec import InputSpec
from fedbn_flower.job.initial_model import build_model
from strategies.aggregation.rule_state import RuleState

from ..records.helpers import Watching, entries

UNFROZEN = {
    "fedadam": {"strategy": "fedadam", "client": "fedbn", "v_init": 0.01},
    "scaffold": {"strategy": "scaffold", "objective": "scaffold", "client": "silobn"},
    "moon": {"strategy": "fedavg", "objective": "moon", "client": "ditto", "train": "1.bias,4"},
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", UNFROZEN)
def test_from_a_round_on_everything_trains(run, name):
    """Also in a run that is resumed: `test_pairs_of_features`."""
    whole = run(**{"train": "4", "unfreeze_at": 2, "rounds": 3} | UNFROZEN[name])
    sent = whole.history["bytes-sent"].tolist()
    assert sent[0] < sent[1] == sent[2]
    start = build_model("mlp-bn", InputSpec((1, 8, 8), 10), False, 0)
    assert not torch.equal(whole.model(0)[1].weight, start[1].weight)


def test_new_parameters_begin_with_the_state_that_others_began_with():
    state = RuleState(vectors={"v": np.array([3.0, 4.0])}, new=np.array([True, False, True, False]))
    assert state.vector("v", like=np.zeros(4), fill=0.5).tolist() == [0.5, 3.0, 0.5, 4.0]
    assert state.vector("v", like=np.zeros(4), fill=0.5) is state.vectors["v"]
    with pytest.raises(AggregationError, match="is for 4 parameters, but the model has 5"):
        state.vector("v", like=np.zeros(5))
    assert state.vectors["began"].tolist() == [0, 0, 0, 0]  # no update yet


@pytest.mark.parametrize("since", [2, 5])
def test_what_is_unfrozen_begins_with_a_step_of_full_size(run, since):
    """FedYogi's first step is eta D / (|D| + tau), which is eta where tau is nothing; it was 0.74 of it."""
    models, eta = [], 0.01
    keys = {"client": "shared", "train": "4", "server_lr": eta, "tau": 1e-9, "rounds": since}
    run(**keys, unfreeze_at=since, observers=[Watching(lambda round_: models.append(entries(round_)))])
    start = build_model("mlp-bn", InputSpec((1, 8, 8), 10), False, 0).state_dict()["1.weight"].numpy()
    step = np.abs(models[-1]["1.weight"] - start)
    assert np.median(step) == pytest.approx(eta, rel=1e-3)


@pytest.mark.slow
def test_a_checkpoint_without_counts_is_resumed(run):
    """As those of earlier versions are: it goes on as it began, by the run's number of updates."""
    keys = {"train": "4", "unfreeze_at": 2, "client": "shared"}
    first = run(**keys, rounds=3, run_dir="first")
    server = first.folder / "checkpoint" / "server.safetensors"
    with safe_open(server, "np") as file:
        entries = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    began = entries.pop("rule/began")
    assert (began.dtype, set(began.tolist())) == (np.int32, {0, 1})
    save_file(entries, server, metadata)
    assert run(resume="first", rounds=4).summary["failures"] == 0
