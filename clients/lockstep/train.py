"""The training of a cohort."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from flwr.common import NDArrays, Scalar
from numpy.typing import NDArray
from torch import Tensor, nn

from ..base import FedAvgClient
from ..examples import Examples
from ..objectives import Objective
from ..training import LocalRun
from .stacked import stacked, stacked_layers

FitResult = tuple[NDArrays, int, dict[str, Scalar]]


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
    plan = _Plan(runs)
    layers = stacked_layers(model)
    finished: list[tuple[slice, dict[str, Tensor]]] = []
    active = len(runs)
    model.train()
    for step in range(len(plan.rows)):
        still = int((plan.sizes[step] > 0).sum())
        if still < active:  # what comes after moves these rows too, to no effect
            rows = slice(still, active)
            finished.append((rows, {name: p.detach()[rows].clone() for name, p in parameters.items()}))
            active = still
        images, labels, mask = plan.batch(step, active)
        for layer in layers:
            layer.active, layer.mask = active, mask
        optimizer.zero_grad()
        losses, outputs = objective.loss(model, images.flatten(0, 1), labels.flatten(), "none")
        losses = losses.view_as(labels)
        means = losses.mean(1) if mask is None else (losses * mask).sum(1) / mask.sum(1)
        torch.autograd.backward(means.sum())
        objective.correct_gradients()
        if training.clip_norm:
            _clip([p.grad for p in parameters.values() if p.grad is not None], training.clip_norm)
        optimizer.step()
        plan.note(step, losses.detach(), outputs.detach())
    optimizer.zero_grad()
    for rows, final in finished:
        for name, values in final.items():
            parameters[name].detach()[rows] = values
    return plan.metrics()


class _Plan:
    """Every batch of a cohort, and what came of it; by (step, client, place in the batch)."""

    def __init__(self, runs: Sequence[LocalRun]) -> None:
        self.runs = runs
        self.examples = runs[0].examples
        self.images, offsets = _joined([run.examples for run in runs])
        batches, self.last_epochs = [], []
        for run in runs:
            rng = run.generator()
            rng.integers(2**63)  # the draw that seeds dropout, which there is none of here
            epochs = list(run.epochs(rng))
            batches.append([batch for epoch in epochs for batch in epoch])
            self.last_epochs.append(len(batches[-1]) - len(epochs[-1]))
        steps = len(batches[0])
        self.sizes = np.zeros((steps, len(runs)), np.int64)
        for i, own in enumerate(batches):
            self.sizes[: len(own), i] = [len(batch) for batch in own]
        shape = (*self.sizes.shape, int(self.sizes.max()))
        self.rows = np.zeros(shape, np.int64)  # where nothing is, the first image: it is masked
        labels = np.zeros(shape, np.int64)
        for i, (run, own, offset) in enumerate(zip(runs, batches, offsets, strict=True)):
            for step, batch in enumerate(own):
                rows = run.examples.rows[batch]
                labels[step, i, : len(batch)] = run.examples.labels[rows]
                self.rows[step, i, : len(batch)] = rows + offset
        self.labels = torch.from_numpy(labels).to(self.examples.device)
        present = np.arange(shape[2]) < self.sizes[..., None]
        self.mask = torch.from_numpy(present.astype(np.float32)).to(self.examples.device)
        self.losses = torch.zeros_like(self.mask)
        self.answers = torch.zeros_like(self.labels)

    def batch(self, step: int, active: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Images (active, b, ...), labels and mask (active, b) of a step; no mask where all are there."""
        sizes = self.sizes[step, :active]
        part = np.s_[step, :active, : sizes.max()]
        images = self.examples.scaled(self.images[self.rows[part]])
        return images, self.labels[part], self.mask[part] if sizes.min() < sizes.max() else None

    def note(self, step: int, losses: Tensor, outputs: Tensor) -> None:
        """Keep the losses, (active, b), and what was answered."""
        part = np.s_[step, : len(losses), : losses.shape[1]]
        self.losses[part] = losses
        self.answers[part] = outputs.argmax(1).view_as(losses)

    def metrics(self) -> list[dict[str, float]]:
        """Each client's metrics."""
        losses = (self.losses * self.mask).sum(2).cpu().numpy()
        hits = ((self.answers == self.labels) * self.mask).sum(2).cpu().numpy()
        steps = (self.sizes > 0).sum(0).tolist()
        return [
            run.metrics(steps[i], float(losses[start:, i].sum()), float(hits[start:, i].sum()))
            for i, (run, start) in enumerate(zip(self.runs, self.last_epochs, strict=True))
        ]


def _joined(examples: Sequence[Examples]) -> tuple[NDArray[np.uint8], list[int]]:
    """One array with the images of all, and where in it each client's begin: as a rule they share one."""
    if all(e.images is examples[0].images for e in examples):
        return examples[0].images, [0] * len(examples)
    starts = np.cumsum([0, *(len(e.images) for e in examples)]).tolist()
    return np.concatenate([e.images for e in examples]), starts[:-1]


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


def _clip(gradients: Sequence[Tensor], bound: float) -> None:
    """Each client's gradient clipped to an L2 norm, as `torch.nn.utils.clip_grad_norm_` does."""
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)
    factor = (bound / (norms + 1e-6)).clamp(max=1.0)
    for g in gradients:
        g.mul_(factor.view(-1, *[1] * (g.dim() - 1)))
