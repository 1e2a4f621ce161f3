"""Clients in lockstep: a cohort trains at once, its models stacked along a new first dimension.

For small models most of a step is the cost of calling into PyTorch, which is then paid once for the cohort.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from flwr.common import NDArrays, Scalar
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd
from torch.overrides import TorchFunctionMode

from .base import FedAvgClient
from .objectives import Objective
from .training import LocalRun

FitResult = tuple[NDArrays, int, dict[str, Scalar]]


def fits_lockstep(model: nn.Module, objective: type[Objective], device: str) -> bool:
    """Whether clients of this model can train in lockstep and gain by it.

    Dropout would draw other numbers than one by one, and a cumulative BatchNorm (momentum None) has no fixed
    momentum. Convolutions gain nothing on a CPU.
    """
    modules = list(model.modules())
    return (
        objective.elementwise
        and not any(isinstance(m, _DropoutNd) for m in modules)
        and not any(isinstance(m, _BatchNorm) and m.momentum is None for m in modules)
        and (device != "cpu" or not any(isinstance(m, _ConvNd) for m in modules))
    )


def fit_in_lockstep(
    clients: Sequence[FedAvgClient], parameters: NDArrays, config: dict[str, Scalar]
) -> list[FitResult | Exception]:
    """What ``client.fit(parameters, config)`` gives for each client, to about 1e-5, or what it raised.

    All clients received the same parameters and config, and share one model object.
    """
    model = clients[0].task.model
    # Those with the most steps first: the clients still active are then always the first rows.
    order = sorted(range(len(clients)), key=lambda i: -len(clients[i].task.train))
    stack = {name: _room(entry, len(clients)) for name, entry in model.state_dict().items()}
    rows = [{name: entries[i] for name, entries in stack.items()} for i in range(len(clients))]
    runs = []
    for client, row in zip((clients[i] for i in order), rows, strict=True):
        client.load(row, parameters)
        runs.append(client.begin_run(row, config))
    metrics = train_in_lockstep(model, stack, runs)
    results: dict[int, FitResult | Exception] = {}
    for i, row, run, found in zip(order, rows, runs, metrics, strict=True):
        try:
            results[i] = clients[i].end_run(run, found, row, config)
        except Exception as error:  # one client's failure is no other's
            results[i] = error
    return [results[i] for i in range(len(clients))]


def _room(entry: Tensor, count: int) -> Tensor:
    """Room for so many of an entry. Matrices lie transposed, as a linear layer's gradient comes out of the
    batched product: copying it into the other layout would cost as much as the product."""
    if entry.dim() == 2:
        return entry.new_empty((count, *entry.t().shape)).transpose(1, 2)
    return entry.new_empty((count, *entry.shape))


def train_in_lockstep(
    model: nn.Module, stack: Mapping[str, Tensor], runs: Sequence[LocalRun]
) -> list[dict[str, float]]:
    """Train the stacked models in place; each run's metrics.

    Parameters
    ----------
    model : nn.Module
        The network; its own entries are not used.
    stack : Mapping[str, Tensor]
        Every entry of the state dict, shape (clients, ...).
    runs : Sequence[LocalRun]
        One a client, those with the most examples first, alike in everything but the examples, the seed and
        the objective's memory.
    """
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    parameters = {name: stack[name] for name in names}
    buffers = {name: entry for name, entry in stack.items() if name not in parameters}
    objective = _stacked_objective([run.objective for run in runs], parameters)
    optimizer = runs[0].training.make_optimizer(parameters.values(), runs[0].learning_rate)
    schedules = [_Schedule(run) for run in runs]
    finished: list[tuple[slice, dict[str, Tensor]]] = []
    active = len(runs)
    model.train()
    for step in range(len(schedules[0].batches)):
        still = sum(step < len(schedule.batches) for schedule in schedules)
        if still < active:  # what comes after moves these rows too, to no effect
            rows = slice(still, active)
            finished.append((rows, {name: p[rows].clone() for name, p in parameters.items()}))
            active = still
        images, labels, mask = _batch(schedules[:active], step)
        w = {name: p[:active].detach().requires_grad_() for name, p in parameters.items()}
        others = {name: b[:active] for name, b in buffers.items()}
        losses, outputs = _losses(model, runs[0].objective, w, others, images, labels, mask)
        weights = mask / mask.sum(1, keepdim=True)
        gradients = torch.autograd.grad((losses * weights).sum(), list(w.values()), allow_unused=True)
        for p, gradient in zip(parameters.values(), gradients, strict=True):
            p.grad = _filled(gradient, p)
        if objective:
            objective.correct_gradients()
        if runs[0].training.clip_norm:
            _clip([p.grad for p in parameters.values() if p.grad is not None], runs[0].training.clip_norm)
        optimizer.step()
        hits = (outputs.detach().argmax(2) == labels) * mask
        totals = torch.stack(((losses.detach() * mask).sum(1), hits.sum(1)))
        for schedule, found in zip(schedules, totals.unbind(1), strict=False):
            schedule.totals.append(found)
    for rows, final in finished:
        for name, values in final.items():
            parameters[name][rows] = values
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
        self.totals: list[Tensor] = []
        """By step: the sum of the losses and the number of hits."""

    def metrics(self) -> dict[str, float]:
        loss, hits = torch.stack(self.totals[self.last_epoch :]).sum(0).tolist()
        return self.run.metrics(len(self.batches), loss, hits)


def _stacked_objective(objectives: Sequence[Objective], parameters: Mapping[str, Tensor]) -> Objective | None:
    """One objective for all clients, its memory stacked; None if it leaves the gradient as it is."""
    first = objectives[0]
    if type(first).correct_gradients is Objective.correct_gradients:
        return None
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


def _losses(
    model: nn.Module,
    objective: Objective,
    parameters: Mapping[str, Tensor],
    buffers: Mapping[str, Tensor],
    images: Tensor,
    labels: Tensor,
    mask: Tensor,
) -> tuple[Tensor, Tensor]:
    """The loss of every example, (clients, b), and the outputs, (clients, b, classes)."""
    whole = bool(mask.all())

    def losses(
        own: Mapping[str, Tensor], others: Mapping[str, Tensor], x: Tensor, y: Tensor, present: Tensor
    ) -> tuple[Tensor, Tensor]:
        def network(batch: Tensor) -> Tensor:
            output: Tensor = functional_call(model, {**own, **others}, (batch,))
            return output

        if whole:
            return objective.loss(network, x, y)
        with _MaskedBatchNorm(present):
            return objective.loss(network, x, y)

    found: tuple[Tensor, Tensor] = vmap(losses)(parameters, buffers, images, labels, mask)
    return found


def _filled(gradient: Tensor | None, parameter: Tensor) -> Tensor | None:
    """The gradient of all rows; zero for those no longer active."""
    if gradient is None or len(gradient) == len(parameter):
        return gradient
    whole = torch.zeros_like(parameter)
    whole[: len(gradient)] = gradient
    return whole


def _clip(gradients: Sequence[Tensor], bound: float) -> None:
    """Each client's gradient clipped to an L2 norm, as `torch.nn.utils.clip_grad_norm_` does."""
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)
    factor = (bound / (norms + 1e-6)).clamp(max=1.0)
    for g in gradients:
        g.mul_(factor.view(-1, *[1] * (g.dim() - 1)))


class _MaskedBatchNorm(TorchFunctionMode):
    """In its scope BatchNorm sees the examples of a mask, shape (b,), and no others."""

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.mask = mask

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function is functional.batch_norm:
            return _masked_batch_norm(self.mask, *args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))


def _masked_batch_norm(
    mask: Tensor,
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """`torch.nn.functional.batch_norm` in training mode over the examples of the mask."""
    dims = [d for d in range(x.dim()) if d != 1]
    shape = [1, -1, *[1] * (x.dim() - 2)]
    present = mask.view(-1, *[1] * (x.dim() - 1))
    count = mask.sum() * (x[0, 0].numel())
    mean = (x * present).sum(dims) / count
    centred = x - mean.view(shape)
    variance = (centred.square() * present).sum(dims) / count
    if running_mean is not None and running_var is not None:
        running_mean.mul_(1 - momentum).add_(momentum * mean.detach())
        running_var.mul_(1 - momentum).add_(momentum * count / (count - 1) * variance.detach())
    y = centred * torch.rsqrt(variance + eps).view(shape)
    if weight is not None and bias is not None:
        y = y * weight.view(shape) + bias.view(shape)
    return y
