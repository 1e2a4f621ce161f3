"""Clients in lockstep: a cohort trains at once, its models stacked into one.

For small models most of a step is the cost of calling into PyTorch, which is then paid once for the cohort.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from flwr.common import NDArrays, Scalar
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from .base import FedAvgClient
from .objectives import Objective
from .stacked import can_stack, set_batch, stacked
from .training import LocalRun

FitResult = tuple[NDArrays, int, dict[str, Scalar]]


def fits_lockstep(model: nn.Module, objective: type[Objective], device: str) -> bool:
    """Whether clients of this model can train in lockstep and gain by it.

    Dropout would draw other numbers than one by one. Convolutions gain nothing on a CPU.
    """
    modules = list(model.modules())
    return (
        objective.elementwise
        and can_stack(model)
        and not any(isinstance(m, _DropoutNd) for m in modules)
        and (device != "cpu" or not any(isinstance(m, nn.Conv2d) for m in modules))
    )


def fit_in_lockstep(
    clients: Sequence[FedAvgClient], parameters: NDArrays, config: dict[str, Scalar]
) -> list[FitResult | Exception]:
    """What ``client.fit(parameters, config)`` gives for each client, to about 1e-5, or what it raised.

    All clients received the same parameters and config, and share one model object.
    """
    # Those with the most steps first: the clients still active are then always the first rows.
    order = sorted(range(len(clients)), key=lambda i: -len(clients[i].task.train))
    model = stacked(clients[0].task.model, len(clients))
    entries = model.state_dict()
    rows = [{name: entry[i] for name, entry in entries.items()} for i in range(len(clients))]
    runs = []
    for client, row in zip((clients[i] for i in order), rows, strict=True):
        client.load(row, parameters)
        runs.append(client.begin_run(row, config))
    metrics = train_in_lockstep(model, runs)
    results: dict[int, FitResult | Exception] = {}
    for i, row, run, found in zip(order, rows, runs, metrics, strict=True):
        try:
            results[i] = clients[i].end_run(run, found, row, config)
        except Exception as error:  # one client's failure is no other's
            results[i] = error
    return [results[i] for i in range(len(clients))]


def train_in_lockstep(model: nn.Module, runs: Sequence[LocalRun]) -> list[dict[str, float]]:
    """Train the rows of a stacked model in place; each run's metrics.

    ``runs`` are one a row, those with the most examples first, alike in everything but the examples, the
    seed and the objective's memory.
    """
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    training = runs[0].training
    objective = _stacked_objective([run.objective for run in runs], parameters)
    optimizer = training.make_optimizer(parameters.values(), runs[0].learning_rate)
    schedules = [_Schedule(run) for run in runs]
    finished: list[tuple[slice, dict[str, Tensor]]] = []
    active = len(runs)
    model.train()
    for step in range(len(schedules[0].batches)):
        still = sum(step < len(schedule.batches) for schedule in schedules)
        if still < active:  # what comes after moves these rows too, to no effect
            rows = slice(still, active)
            finished.append((rows, {name: p.detach()[rows].clone() for name, p in parameters.items()}))
            active = still
        images, labels, mask = _batch(schedules[:active], step)
        sizes = mask.sum(1)
        set_batch(model, active, None if bool(mask.all()) else mask)
        optimizer.zero_grad()
        losses, outputs = objective.loss(model, images.flatten(0, 1), labels.flatten(), "none")
        losses = losses.view_as(labels) * mask
        torch.autograd.backward((losses.sum(1) / sizes).sum())
        objective.correct_gradients()
        if training.clip_norm:
            _clip([p.grad for p in parameters.values() if p.grad is not None], training.clip_norm)
        optimizer.step()
        hits = (outputs.detach().argmax(1).view_as(labels) == labels) * mask
        totals = torch.stack((losses.detach().sum(1), hits.sum(1)), dim=1).tolist()
        for schedule, found in zip(schedules, totals, strict=False):
            schedule.totals.append(found)
    optimizer.zero_grad()
    for rows, final in finished:
        for name, values in final.items():
            parameters[name].detach()[rows] = values
    return [schedule.metrics() for schedule in schedules]


class _Schedule:
    """The batches of one client's run, and what came of them."""

    def __init__(self, run: LocalRun) -> None:
        self.run = run
        rng = run.generator()
        rng.integers(2**63)  # the draw that seeds dropout, which there is none of here
        epochs = list(run.epochs(rng))
        self.batches = [batch for epoch in epochs for batch in epoch]
        self.last_epoch = len(self.batches) - len(epochs[-1])
        self.totals: list[list[float]] = []
        """By step: the sum of the losses and the number of hits."""

    def metrics(self) -> dict[str, float]:
        loss, hits = np.sum(self.totals[self.last_epoch :], axis=0).tolist()
        return self.run.metrics(len(self.batches), loss, hits)


def _stacked_objective(objectives: Sequence[Objective], parameters: Mapping[str, Tensor]) -> Objective:
    """One objective for all clients, its memory stacked; what they have of their own if it has none."""
    first = objectives[0]
    if type(first).correct_gradients is Objective.correct_gradients:
        return first
    memories = [objective.memory for objective in objectives]
    memory = None
    if any(memories):
        memory = {
            name: np.stack([m[name] if m else np.zeros(x.shape, np.float32) for m in memories])
            for name, x in first.start.items()
        }
    taking_part = {name: parameters[name] for name in first.parameters}
    return type(first)(taking_part, first.settings, memory, first.control)


def _batch(schedules: Sequence[_Schedule], step: int) -> tuple[Tensor, Tensor, Tensor]:
    """Images (clients, b, ...), labels and mask (clients, b) of a step; what is missing is masked."""
    batches = [schedule.batches[step] for schedule in schedules]
    shape = (len(batches), max(len(batch) for batch in batches))
    first = schedules[0].run.examples
    images = np.zeros((*shape, *first.images.shape[1:]), first.images.dtype)
    labels = np.zeros(shape, np.int64)
    mask = np.zeros(shape, np.float32)
    for i, (schedule, batch) in enumerate(zip(schedules, batches, strict=True)):
        examples, size = schedule.run.examples, len(batch)
        rows = examples.rows[batch]
        images[i, :size], labels[i, :size], mask[i, :size] = examples.images[rows], examples.labels[rows], 1
    return (
        first.scaled(images),
        torch.from_numpy(labels).to(first.device),
        torch.from_numpy(mask).to(first.device),
    )


def _clip(gradients: Sequence[Tensor], bound: float) -> None:
    """Each client's gradient clipped to an L2 norm, as `torch.nn.utils.clip_grad_norm_` does."""
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)
    factor = (bound / (norms + 1e-6)).clamp(max=1.0)
    for g in gradients:
        g.mul_(factor.view(-1, *[1] * (g.dim() - 1)))
