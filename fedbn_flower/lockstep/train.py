"""Train a cohort in lockstep."""

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
import torch
from flwr.common import NDArrays, Scalar
from torch import Tensor, nn

from fedbn_flower.clients.base import FedAvgClient
from fedbn_flower.clients.examples import LOADED, Columns, Examples, Prepare, as_they_are
from fedbn_flower.clients.graphs import Steps, graphs_of
from fedbn_flower.clients.modules.clipping import before_head, clip_adaptively
from fedbn_flower.clients.modules.frozen import train_mode
from fedbn_flower.clients.modules.surroundings import usual_surroundings
from fedbn_flower.clients.objectives import Objective
from fedbn_flower.clients.problems.evaluation import scores_of
from fedbn_flower.clients.training import LocalRun, LocalTask, LocalTraining
from fedbn_flower.clients.update import Received, Update
from fedbn_flower.core.ground.wire import SERVER_ROUND

from .stacked_modules import Stacked, StackedLinear, Vmapped, stacked, stacked_layers


@usual_surroundings()
def fit_in_lockstep(
    clients: Sequence[FedAvgClient], parameters: NDArrays, config: dict[str, Scalar]
) -> list[Update | Exception]:
    """Return each client's result of ``client.fit(parameters, config)``, to about 1e-5, or its exception.

    All clients get the same parameters and config, and share one model object. A client that fails in
    lockstep is trained again alone, so the result or the exception is that of `fit`. The arrays of the
    results are valid until the next call.
    """
    # Most steps first, so that the active clients are always the first rows.
    server_round = int(config[SERVER_ROUND])
    order = sorted(range(len(clients)), key=lambda i: _work(clients[i].task, server_round), reverse=True)
    model = stacked(clients[0].task.model, len(clients))
    rows, _ = loaded_rows(model, [clients[i] for i in order], parameters)
    records = parameters.records if isinstance(parameters, Received) else {}
    pairs = [(clients[i], row) for i, row in zip(order, rows, strict=True)]
    runs = [client.begin_run(row, config, records) for client, row in pairs]
    before = [client.before_training(row, config) for client, row in pairs]
    metrics = train_in_lockstep(model, runs)
    results: dict[int, Update | Exception] = {}
    for i, row, run, found, start in zip(order, rows, runs, metrics, before, strict=True):
        try:
            results[i] = clients[i].end_run(run, {**found, **start}, row, config, copy=False)
        except Exception:
            results[i] = _fit_alone(clients[i], parameters, config)
    return [results[i] for i in range(len(clients))]


def loaded_rows(
    model: nn.Module, clients: Sequence[FedAvgClient], parameters: NDArrays
) -> tuple[list[dict[str, Tensor]], list[bool]]:
    """Load each client's model into its row of a stacked one.

    Return the entries of the rows by name, and whose local entries come from the client's memory.
    """
    entries = model.state_dict()
    rows = [{name: entry[i] for name, entry in entries.items()} for i in range(len(clients))]
    if clients[0].local_names:
        return rows, [client.load(row, parameters) for client, row in zip(clients, rows, strict=True)]
    clients[0].load(rows[0], parameters)
    for entry in entries.values():  # all begin with the same
        entry[1:] = entry[0]
    return rows, [False] * len(clients)


def _fit_alone(client: FedAvgClient, parameters: NDArrays, config: dict[str, Scalar]) -> Update | Exception:
    client.memory.discard()
    try:
        return client.fit(parameters, config)
    except Exception as error:  # a failure of one client must not affect others
        return error


@usual_surroundings()
def train_in_lockstep(model: nn.Module, runs: Sequence[LocalRun]) -> list[dict[str, float]]:
    """Train the rows of a stacked model in place and return each run's metrics.

    There is one run per row, those with the most steps first. They differ only in the examples, the seed, the
    share and the objective's memory.
    """
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    training = runs[0].training
    objective = _stacked_objective([run.objective for run in runs], parameters)
    optimizer = training.make_optimizer(parameters.values(), runs[0].learning_rate)
    plan = _Plan(runs)
    layers = stacked_layers(model) or [Vmapped(model, len(runs))]
    called = layers[0] if isinstance(layers[0], Vmapped) else model
    adaptive = before_head(model) if training.agc else []
    products = _product_layers(layers, training, objective)
    finished: list[tuple[slice, dict[str, Tensor]]] = []
    active = len(runs)
    train_mode(model, runs[0].still)

    def take(active: int, inputs: Tensor, targets: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        for layer in layers:
            layer.serve(active, mask)
        for product in products:
            product.factors = []  # some may be left where a capture failed
        optimizer.zero_grad()
        losses, outputs = objective.loss(called, inputs, targets, "none")
        losses = losses.view(-1, active)
        mean = losses.sum() / len(losses) if mask is None else ((losses * mask).sum(0) / mask.sum(0)).sum()
        torch.autograd.backward(mean)  # the sum of the clients' means
        objective.correct_gradients()
        if training.agc:
            clip_adaptively(adaptive, training.agc, stacked=True)
        if training.clip_norm:
            _clip([p.grad for p in parameters.values() if p.grad is not None], training.clip_norm)
        optimizer.step()
        for product in products:
            product.descend(runs[0].learning_rate)
        return losses.detach(), outputs.detach()

    for layer in layers:
        layer.serve(active, None)  # graphs go by what layers are at the start of a call
    steps = Steps(take, plan.shapes, graphs_of(model, runs[0]))
    for step, remaining in enumerate((plan.sizes > 0).sum(1).tolist()):
        if remaining < active:  # later steps also change the finished rows, which are restored at the end
            rows = slice(remaining, active)
            finished.append((rows, {name: p.detach()[rows].clone() for name, p in parameters.items()}))
            active = remaining
        inputs, targets, mask = plan.batch(step, active)
        if mask is not None and called is not model:  # it looks at the sizes of the batches
            losses, outputs = take(active, inputs, targets, mask)
        else:
            losses, outputs = steps.take(plan.shapes[step], active, inputs, targets, mask)
        plan.record(step, losses, outputs, targets)
    optimizer.zero_grad()
    for rows, final in finished:
        for name, values in final.items():
            parameters[name].detach()[rows] = values
    return plan.metrics()


def _product_layers(
    layers: Sequence[Stacked], training: LocalTraining, objective: Objective
) -> list[StackedLinear]:
    """Return the linear layers whose gradients may stay factors: only a step of plain SGD needs them."""
    linear = [layer for layer in layers if isinstance(layer, StackedLinear)]
    plain = (
        training.optimizer == "sgd"
        and not (training.momentum or training.weight_decay or training.clip_norm or training.agc)
        and type(objective).correct_gradients is Objective.correct_gradients
    )
    for layer in linear:
        layer.factors = [] if plain else None
    return linear if plain else []


def _work(task: LocalTask, server_round: int) -> tuple[int, int]:
    """Return the sort key of a client: its steps in a round, then its number of examples."""
    return task.training.steps(task.train, task.share(server_round)), len(task.train)


class _Plan:
    """Every batch of a cohort, its losses and scores, by (step, position in the batch, client)."""

    def __init__(self, runs: Sequence[LocalRun]) -> None:
        self.runs = runs
        self.problem = runs[0].objective.problem
        self.columns, self.prepare = _concatenated([run.examples for run in runs])
        offsets = np.cumsum([0, *(len(run.examples) for run in runs)])
        batches, self.last_epochs = [], []
        for run in runs:
            rng = run.generator()
            rng.integers(2**63)  # as in train_model, which draws the seed of dropout
            epochs = list(run.epochs(rng))
            batches.append([batch for epoch in epochs for batch in epoch])
            self.last_epochs.append(len(batches[-1]) - len(epochs[-1]))
        self.sizes = np.zeros((len(batches[0]), len(runs)), np.int64)
        for i, client_batches in enumerate(batches):
            self.sizes[: len(client_batches), i] = [len(batch) for batch in client_batches]
        self.widths = self.sizes.max(1).tolist()
        self.padded = ((self.sizes > 0) & (self.sizes < self.sizes.max(1, keepdims=True))).any(1).tolist()
        self.shapes = list(zip(self.widths, (self.sizes > 0).sum(1).tolist(), self.padded, strict=True))
        shape = (len(self.sizes), max(self.widths), len(runs))
        rows = np.zeros(shape, np.int64)  # padding is the first example, masked
        for i, client_batches in enumerate(batches):
            for step, batch in enumerate(client_batches):
                rows[step, : len(batch), i] = batch + offsets[i]
        device = runs[0].examples.device
        self.rows = torch.from_numpy(rows).to(device)
        is_example = np.arange(shape[1])[:, None] < self.sizes[:, None]
        self.mask = torch.from_numpy(is_example.astype(np.float32)).to(device)
        self.scores: dict[str, Tensor] = {}
        self.recorded: list[tuple[int, Tensor, Tensor, Tensor]] = []
        self.held = 0

    def batch(self, step: int, active: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return a step's inputs and targets (b * active, ...), and mask (b, active): None if unpadded."""
        part = np.s_[step, : self.widths[step], :active]
        rows = self.rows[part].reshape(-1)
        mask = self.mask[part] if self.padded[step] else None
        batch = {name: column.index_select(0, rows) for name, column in self.columns.items()}
        return *self.prepare(batch), mask

    def record(self, step: int, losses: Tensor, outputs: Tensor, targets: Tensor) -> None:
        """Record the losses, (b, active), and the outputs. Scores are computed for many steps at once."""
        if step >= min(self.last_epochs):
            self.recorded.append((step, losses, outputs, targets))
            self.held += outputs.numel()
            if self.held > LOADED:
                self._reduce()

    def _reduce(self) -> None:
        for (width, active), same in groupby(self.recorded, key=lambda entry: tuple(entry[1].shape)):
            steps, losses, outputs, targets = zip(*same, strict=True)
            part = np.s_[steps[0] : steps[-1] + 1, :width, :active]
            scores = scores_of(self.problem, torch.cat(outputs), torch.cat(targets))
            for name, values in {"loss": torch.stack(losses), **scores}.items():
                if name not in self.scores:
                    self.scores[name] = torch.zeros_like(self.mask)
                self.scores[name][part] = values.view(len(steps), width, active)
        self.recorded, self.held = [], 0

    def metrics(self) -> list[dict[str, float]]:
        """Return each client's metrics."""
        self._reduce()
        totals = {name: (values * self.mask).sum(1).cpu().numpy() for name, values in self.scores.items()}
        steps = (self.sizes > 0).sum(0).tolist()
        return [
            run.metrics(
                steps[i],
                {name: float(values[start:, i].sum()) for name, values in totals.items()},
                int(self.sizes[start:, i].sum()),
            )
            for i, (run, start) in enumerate(zip(self.runs, self.last_epochs, strict=True))
        ]


def _concatenated(examples: Sequence[Examples]) -> tuple[dict[str, Tensor], Prepare]:
    """Return the concatenated columns of all clients' examples, and the function that prepares a batch.

    If clients have different ``prepare`` functions, the columns are already prepared.
    """
    first = examples[0]
    if all(one.prepare == first.prepare and _same_columns(one.columns, first.columns) for one in examples):
        held = [one.held for one in examples if one.held]
        if len(held) == len(examples):
            return {name: torch.cat([columns[name] for columns in held]) for name in held[0]}, first.prepare
        return first.gathered(np.concatenate([one.rows for one in examples])), first.prepare
    inputs, targets = zip(*(one.prepare(one.taken(np.arange(len(one)))) for one in examples), strict=True)
    return {"x": torch.cat(inputs), "y": torch.cat(targets)}, as_they_are


def _same_columns(columns: Columns, others: Columns) -> bool:
    return {n: id(a) for n, a in columns.items()} == {n: id(a) for n, a in others.items()}


def _stacked_objective(objectives: Sequence[Objective], parameters: Mapping[str, Tensor]) -> Objective:
    """Return one objective for all clients, their memories stacked if it corrects gradients."""
    first = objectives[0]
    if type(first).correct_gradients is Objective.correct_gradients:
        return first
    memories = [objective.memory for objective in objectives]
    memory = None
    if any(memories):
        kept = {name: array for m in memories for name, array in (m or {}).items()}
        memory = {
            name: np.stack([m[name] if m and name in m else np.zeros_like(array) for m in memories])
            for name, array in kept.items()
        }
    trained = {name: parameters[name] for name in first.parameters}
    return type(first)(trained, first.settings, memory, first.received, first.problem, first.local)


def _clip(gradients: Sequence[Tensor], bound: float) -> None:
    """Clip each client's gradient to an L2 norm in place, as `torch.nn.utils.clip_grad_norm_` does."""
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)
    factor = (bound / (norms + 1e-6)).clamp(max=1.0)
    for g in gradients:
        g.mul_(factor.view(-1, *[1] * (g.dim() - 1)))
