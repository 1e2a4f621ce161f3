"""The server's evaluation, shared out to a grid's processes: the same bits, or done by the server alone."""

from copy import deepcopy

import pytest
from torch import nn
from torch.nn import functional

from clients.problems import evaluation
from fedbn_flower.core.process_cache import clear_process_caches
from fedbn_flower.models import MODELS
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.server.evaluation import evaluated_share, load_model
from fedbn_flower.server.federation import Federation

from ..records.helpers import Watching

ROUNDS, SHARES = 3, 3


class Sharing(InlineGrid):
    """Evaluates the shares as workers do, each with a module of its own."""

    def __init__(self, federation):
        config = federation.config
        super().__init__(config.num_clients, config.to_user_config())
        self.inputs, self.shared = federation.inputs, 0

    def evaluate_in_shares(self, arrays, splits, classes):
        self.shared += 1
        found = []
        for i in range(SHARES):
            model = deepcopy(self.inputs.model()[0])
            load_model(model, arrays)
            found.append(evaluated_share(self.inputs, model, splits, classes, (i, SHARES)))
        return {split: [batch for share in found for batch in share[split]] for split in found[0]}


class Flat(nn.Sequential):
    def __init__(self, spec):
        super().__init__(nn.Flatten(), nn.Linear(64, spec.outputs))


class Random(Flat):
    def forward(self, x):
        return functional.dropout(super().forward(x), training=True)


class Remembering(Flat):
    batches = 0

    def forward(self, x):
        self.batches += not self.training
        return super().forward(x) / (1 + self.batches)


def run(config, sharing, monkeypatch):
    """The global model's metrics by round, how many were shared out, and the shares evaluated."""
    clear_process_caches()  # a module that remembers would do so from run to run
    monkeypatch.setattr(evaluation, "EVALUATION_BATCH", 100)
    evaluate, batches = evaluation.evaluate_batches, []

    def counted(model, examples, problem, classes, share, *others):
        batches.append(share)
        return evaluate(model, examples, problem, classes, share, *others)

    federation, rounds = Federation(config), []
    grid = Sharing(federation) if sharing else InlineGrid(config.num_clients, config.to_user_config())
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "evaluate_batches", counted)
        federation.run(grid, [Watching(lambda result: rounds.append(repr(result.global_metrics)))])
    return rounds, grid.shared if sharing else 0, batches


def test_shares_are_the_whole_and_the_server_evaluates_once_itself(configured, monkeypatch):
    config = configured(client="shared", rounds=ROUNDS, val_fraction=0.5, fraction_evaluate=0)
    alone, _, whole = run(config, False, monkeypatch)
    shared, calls, shares = run(config, True, monkeypatch)
    assert shared == alone
    assert calls == ROUNDS
    splits = len(whole) - ROUNDS + 1  # of the last round; the others have one
    assert shares.count((0, 1)) == 1
    assert len(shares) == 1 + SHARES * (ROUNDS - 1 + splits)


@pytest.mark.slow
@pytest.mark.parametrize("model", [Random, Remembering])
def test_a_model_that_is_random_or_remembers_is_evaluated_by_the_server(configured, monkeypatch, model):
    monkeypatch.setitem(MODELS, "odd", model)
    config = configured(client="shared", model="odd", rounds=ROUNDS, fraction_evaluate=0)
    alone, *_ = run(config, False, monkeypatch)
    shared, calls, _ = run(config, True, monkeypatch)
    assert calls == 1
    assert shared == alone
