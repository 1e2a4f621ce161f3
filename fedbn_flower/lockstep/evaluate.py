"""Evaluate a cohort in lockstep: one pass for all, of whose outputs each client makes its metrics."""

import copy
from collections.abc import Iterator, Sequence
from itertools import chain

import torch
from flwr.common import Scalar
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from fedbn_flower.clients.base import FedAvgClient
from fedbn_flower.clients.examples import Examples
from fedbn_flower.clients.modules.batch_norm import batch_norm_statistics
from fedbn_flower.clients.modules.rng import seeded
from fedbn_flower.clients.modules.surroundings import usual_surroundings
from fedbn_flower.clients.problems import Problem
from fedbn_flower.clients.problems.evaluation import evaluation_batch
from fedbn_flower.clients.training import LocalTask, load_entries
from fedbn_flower.clients.update import Received
from fedbn_flower.core.ground.settings import overridden
from fedbn_flower.core.ground.wire import ADAPT_BN, EVAL_SPLITS, FINE_TUNE, OWN_STATISTICS

from ..site.cohorts import Evaluated
from ..site.evaluation_cache import evaluates_its_entries
from .equivalence import SIZES, agree, random_examples
from .stacked_modules import Vmapped, stacked, stacked_layers
from .train import loaded_rows


@usual_surroundings()
def evaluate_in_lockstep(
    clients: Sequence[FedAvgClient], parameters: Received, config: dict[str, Scalar]
) -> list[Evaluated | None]:
    """Return each client's result of ``client.evaluate(parameters, config)``, to about 1e-5.

    It is None for a client that is to evaluate alone. All clients get the same parameters and config, and
    share one model object. Their batches are those of one by one.
    """
    names = str(config[EVAL_SPLITS]).split(",")
    splits = [[client.task.evaluation[name] for client in clients] for name in names]
    if not _may_be_at_once(clients, splits, config):
        return [None] * len(clients)
    model = stacked(clients[0].task.model, len(clients))
    _, known = loaded_rows(model, clients, parameters)
    by_split = [_outputs(model, own, clients[0].task.problem) for own in splits]
    estimated = batch_norm_statistics(clients[0].task.model) & set(clients[0].local_names)
    return [
        _result(client, chain(*outputs), config) if is_known or not estimated else None
        for client, is_known, *outputs in zip(clients, known, *by_split, strict=True)
    ]


def _may_be_at_once(
    clients: Sequence[FedAvgClient], splits: Sequence[Sequence[Examples]], config: dict[str, Scalar]
) -> bool:
    """Whether clients with these held-out examples may be evaluated at once.

    Those that evaluate one model on the same examples do so once, see `Evaluations`. On a GPU the examples
    have to be there: each is taken twice.
    """
    first = clients[0]
    changed = config.get(FINE_TUNE) or config.get(ADAPT_BN) or OWN_STATISTICS in config
    own = first.local_names or all(len({*map(id, examples)}) == len(clients) for examples in splits)
    return (
        not changed
        and bool(own)
        and all(map(evaluates_its_entries, clients))
        and all(len(one) and (one.device == "cpu" or one.held) for examples in splits for one in examples)
    )


def _outputs(model: nn.Module, examples: Sequence[Examples], problem: Problem) -> list[list[Tensor]]:
    """Return the outputs of the rows of a stacked model, one for each client, of each batch, (b, ...)."""
    count = len(examples)
    layers = stacked_layers(model) or [Vmapped(model, count)]
    called = layers[0] if isinstance(layers[0], Vmapped) else model
    batches = [list(one.batches(evaluation_batch(one, problem))) for one in examples]
    found: list[list[Tensor]] = [[] for _ in examples]
    model.eval()
    with torch.inference_mode(), seeded(0):
        for step in range(max(map(len, batches))):
            taken = [own[min(step, len(own) - 1)] for own in batches]  # who is done takes its last one again
            inputs = [one.prepare(one.taken(batch))[0] for one, batch in zip(examples, taken, strict=True)]
            padded = pad_sequence(inputs)
            sizes = torch.tensor([*map(len, inputs)], device=padded.device)
            places = torch.arange(len(padded), device=padded.device).unsqueeze(1)
            mask = (places < sizes).float() if len({*map(len, inputs)}) > 1 else None
            for layer in layers:
                layer.serve(count, mask)
            outputs = called(padded.flatten(0, 1)).unflatten(0, (-1, count))
            for i, (own, one) in enumerate(zip(batches, inputs, strict=True)):
                if step < len(own):
                    found[i].append(outputs[: len(one), i])
    return found


class _Replayed(nn.Module):
    """Returns a model's outputs of batch after batch, which are known.

    Parameters
    ----------
    outputs : Iterator[Tensor]
        (b, ...) of each batch.
    """

    def __init__(self, outputs: Iterator[Tensor]) -> None:
        super().__init__()
        self.left = outputs

    def forward(self, inputs: Tensor) -> Tensor:
        return next(self.left)


def _result(client: FedAvgClient, outputs: Iterator[Tensor], config: dict[str, Scalar]) -> Evaluated | None:
    try:
        return client.answered(client.metrics_of(_Replayed(outputs), config), config)
    except Exception:  # evaluating alone reports its own
        return None


@usual_surroundings()
def reason_not_evaluated(task: LocalTask) -> str:
    """Try two models on random examples. Return "" if each has its own outputs, else why not, in words."""
    problem, model = task.problem, copy.deepcopy(task.model)
    if problem.windows or overridden(type(problem), Problem, ["outputs_of", "of_model"]):
        return "the problem looks at the model itself"
    examples = random_examples(task.train, SIZES)
    several, alone = stacked(model, len(examples)), []
    try:
        for i, one in enumerate(examples):
            entries = {n: a * (1 + i / 10) if a.dtype.kind == "f" else a for n, a in task.initial.items()}
            load_entries({name: entry[i] for name, entry in several.state_dict().items()}, entries)
            load_entries(model.state_dict(), entries)
            with torch.inference_mode():
                alone.append(model.eval()(one.prepare(one.taken(one.rows))[0]))
        found = _outputs(several, examples, problem)
    except Exception as error:  # any error: evaluating one at a time reports its own
        return f"the trial raised {type(error).__name__}: {' '.join(str(error).split())}"
    finally:
        stacked.cache_clear()
    pairs = zip(found, alone, strict=True)
    same = all(agree(torch.cat(outputs).numpy(force=True), y.numpy(force=True)) for outputs, y in pairs)
    return "" if same else "the trial disagreed"
