"""Steps of a cohort that a GPU repeats as a CUDA graph, without PyTorch's calls."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fedbn_flower.clients.modules.optimizers import PLAIN
from fedbn_flower.clients.objectives import Objective
from fedbn_flower.clients.training import LocalRun
from fedbn_flower.core.ground.settings import declared

Step = Callable[[int, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]
"""The number of active clients, a batch's inputs, targets and mask -> its losses and outputs."""
WARM_UP = 2  # steps of a shape before its capture: they load kernels, and make the buffers of momentum
ENOUGH = 6  # steps of a shape that repay its capture
MOST = 32  # graphs of a cohort
_KNOWN = frozenset({"torch", "fedbn_flower", __name__.partition(".")[0]})
"""Packages whose classes do not count steps."""
LOGGER = logging.getLogger("flwr.fedbn")


class Graphs:
    """The captured steps of a cohort by shape, and how many steps of each shape there were.

    Parameters
    ----------
    used : object
        What captured steps use and does not end with a call.
    """

    def __init__(self, used: object = None) -> None:
        self.used = used
        self.captured: dict[Hashable, _Captured] = {}
        self.done: Counter[Hashable] = Counter()
        self.fail = False


_LASTING: WeakKeyDictionary[nn.Module, tuple[Hashable, Graphs]] = WeakKeyDictionary()
"""The graphs of stacked models, with what they were captured for; they end with their model."""


def graphs_of(model: nn.Module, run: LocalRun, parameters: Iterable[str]) -> Graphs | None:
    """Return the graphs of a stacked model whose ``parameters`` train; None where steps are not replayed.

    They are those of the last call if a step still does the same, on the same tensors.
    """
    if not may_repeat(model, run):
        return None
    objective, criterion, cudnn = run.objective, run.objective.criterion, torch.backends.cudnn
    own = (Objective.loss, Objective.correct_gradients)
    if run.training.momentum or (type(objective).loss, type(objective).correct_gradients) != own:
        return Graphs()  # buffers, memories and received records are those of the call
    loss: type = type(criterion)
    settings = [(name, getattr(criterion, name)) for name in declared(loss)]
    same = (
        (run.training, run.learning_rate, run.still, *parameters),
        (loss, type(objective.problem), repr(settings)),
        (cudnn.enabled, cudnn.benchmark, cudnn.deterministic, torch.are_deterministic_algorithms_enabled()),
    )
    if model not in _LASTING or _LASTING[model][0] != same:
        _LASTING[model] = same, Graphs(criterion)
    return _LASTING[model][1]


def may_repeat(model: nn.Module, run: LocalRun) -> bool:
    """Whether the steps of this run do the same on a GPU each time.

    The optimisers of torch.optim count steps on the CPU; what others have written may do so.
    """
    objective = run.objective
    parts = [objective, objective.criterion, objective.problem, *model.modules()]
    return (
        torch.device(run.examples.device).type == "cuda"
        and not torch.is_anomaly_enabled()  # it looks at every value
        and run.training.optimizer == PLAIN
        and all(type(part).__module__.partition(".")[0] in _KNOWN for part in parts)
    )


class Steps:
    """The steps of one call; from some point on, those of one shape are replays of a captured one.

    A replay starts the same kernels with the same arguments as the step that was captured, so its bits are
    the same as far as the kernels' own are.

    Parameters
    ----------
    step : Step
        Trains on a batch. It reads nothing but its arguments and tensors that stay where they are.
    shapes : Iterable[Hashable]
        The shape of each step of the call: equal for two whose tensors have equal shapes.
    graphs : Graphs, optional
        See `graphs_of`. Without them, nothing is replayed.
    """

    def __init__(self, step: Step, shapes: Iterable[Hashable], graphs: Graphs | None) -> None:
        self.step = step
        self.left = Counter(shapes)
        self.graphs = graphs

    def take(
        self, shape: Hashable, active: int, inputs: Tensor, targets: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Take the next step, which has this shape. Return its losses and outputs."""
        if not (graphs := self.graphs):
            return self.step(active, inputs, targets, mask)
        if shape not in graphs.captured and self._repays(shape, graphs):
            try:
                graphs.captured[shape] = _Captured(self.step, active, inputs, targets, mask)
            except RuntimeError as error:  # nothing was computed
                LOGGER.info("steps are not captured as a CUDA graph: %s", error)
                graphs.fail = True
        self.left[shape] -= 1
        graphs.done[shape] += 1
        if shape in graphs.captured:
            return graphs.captured[shape].replay(inputs, targets, mask)
        return self.step(active, inputs, targets, mask)

    def _repays(self, shape: Hashable, graphs: Graphs) -> bool:
        done = graphs.done[shape]
        possible = not graphs.fail and len(graphs.captured) < MOST
        return possible and done >= WARM_UP and done + self.left[shape] >= ENOUGH


class _Captured:
    """A step that was captured, and the tensors that it reads and writes."""

    def __init__(self, step: Step, active: int, inputs: Tensor, targets: Tensor, mask: Tensor | None) -> None:
        own = inputs.clone(), targets.clone(), None if mask is None else mask.clone()
        self.given = own
        self.graph, (self.losses, self.outputs) = _capture(lambda: step(active, *own), _pool())

    def replay(self, *given: Tensor | None) -> tuple[Tensor, Tensor]:
        """Take the step with these tensors. Return its losses and outputs."""
        for own, tensor in zip(self.given, given, strict=True):
            if own is not None and tensor is not None:
                own.copy_(tensor)
        self.graph.replay()
        return self.losses.clone(), self.outputs.clone()


def _capture(
    compute: Callable[[], tuple[Tensor, Tensor]], pool: Any = None
) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, Tensor]]:
    """Capture without what `torch.cuda.graph` does before: it empties the allocator's cache each time."""
    graph, stream = torch.cuda.CUDAGraph(), _stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin(pool, capture_error_mode="thread_local")
        try:
            found = compute()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph, found


@cache
def _stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


@cache
def _anchor() -> torch.cuda.CUDAGraph:
    """A graph that keeps the memory pool of all others alive, so that later calls use it again."""
    return _capture(lambda: (torch.zeros(1, device="cuda"),) * 2)[0]


def _pool() -> Any:
    return _anchor().pool()
