"""Steps of training that a GPU repeats as a CUDA graph, without PyTorch's calls."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from functools import cache, partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary, ref

from fedbn_flower.core.ground.settings import declared

from .examples import Examples
from .modules.lazy_torch import nn, torch
from .modules.optimizers import PLAIN
from .modules.precision import is_half, precision_of
from .modules.rng import generators
from .objectives import Objective

Step = Callable[..., tuple["torch.Tensor", ...]]
"""A batch's inputs, targets and what else a step goes by -> its loss and outputs."""
WARM_UP = 2  # steps of a shape before its capture: they load kernels, and make the buffers of momentum
ENOUGH = 6  # steps of a shape that repay its capture
MOST = 32  # graphs of a model
_KNOWN = frozenset({"torch", "torchvision", "timm", "fedbn_flower", __name__.partition(".")[0]})
"""Packages whose classes do not count steps."""
LOGGER = logging.getLogger("flwr.fedbn")


class Repeatable(Protocol):
    """A `training.LocalRun`, as far as its steps go by it."""

    @property
    def objective(self) -> Objective:
        """The loss, and what is done to its gradients."""

    @property
    def training(self) -> Any:
        """The optimiser and its settings."""

    @property
    def learning_rate(self) -> float:
        """That of the round."""

    @property
    def examples(self) -> Examples:
        """On the device of the steps."""

    @property
    def mechanism(self) -> object:
        """That of example-level differential privacy, if any."""


class Graphs:
    """The captured steps of a model by shape, and how many steps of each shape there were.

    Parameters
    ----------
    pool : callable
        Returns the memory of the graphs. Those of one model are not replayed at the same time, and share it.
    used : object
        What captured steps use and does not end with a call.
    """

    def __init__(self, pool: Callable[[], Any], used: object = None) -> None:
        self.pool = pool
        self.used = used
        self.captured: dict[Hashable, _Captured] = {}
        self.done: Counter[Hashable] = Counter()
        self.fail = False


_LASTING: WeakKeyDictionary[nn.Module, tuple[Hashable, Graphs]] = WeakKeyDictionary()
"""The graphs of models, with what they were captured for; they end with their model."""
_ANCHORS: WeakKeyDictionary[nn.Module, torch.cuda.CUDAGraph] = WeakKeyDictionary()
"""A graph of each model that keeps its pool of memory alive, so that later calls use it again."""


def graphs_of(model: nn.Module, run: Repeatable) -> Graphs | None:
    """Return the graphs of a model, in the mode in which it trains; None where steps are not replayed.

    They are those of the last call if a step still does the same, on the same tensors.
    """
    if not may_repeat(model, run):
        return None
    objective, criterion, cudnn = run.objective, run.objective.criterion, torch.backends.cudnn
    own = (Objective.loss, Objective.correct_gradients)
    pool = partial(_pool, ref(model))
    if run.training.momentum or (type(objective).loss, type(objective).correct_gradients) != own:
        return Graphs(pool)  # buffers, memories and received records are those of the call
    loss: type = type(criterion)
    settings = [(name, getattr(criterion, name)) for name in declared(loss)]
    same = (
        (run.training, run.learning_rate),
        tuple(module.training for module in model.modules()),
        tuple(parameter.requires_grad for parameter in model.parameters()),
        (loss, type(objective.problem), repr(settings)),
        (cudnn.enabled, cudnn.benchmark, cudnn.deterministic, torch.are_deterministic_algorithms_enabled()),
    )
    if model not in _LASTING or _LASTING[model][0] != same:
        _LASTING[model] = same, Graphs(pool, criterion)
    return _LASTING[model][1]


def may_repeat(model: nn.Module, run: Repeatable) -> bool:
    """Whether the steps of this run do the same on a GPU each time.

    The optimisers of torch.optim count steps on the CPU; what others have written may do so, and so may
    hooks, and an objective that does not say that it is the same function for all clients. In half precision
    the loss's scale goes by the gradients.
    """
    objective = run.objective
    parts = [objective, objective.criterion, objective.problem, *model.modules()]
    return (
        torch.device(run.examples.device).type == "cuda"
        and not torch.is_anomaly_enabled()  # it looks at every value
        and run.training.optimizer == PLAIN
        and not run.mechanism
        and vars(type(objective)).get("elementwise") is True
        and vars(type(objective.criterion)).get("alike") is True
        and not is_half(precision_of(model))
        and not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
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

    def take(self, shape: Hashable, *given: Any) -> tuple[torch.Tensor, ...]:
        """Take the next step, which has this shape. Return its loss and outputs."""
        if not (graphs := self.graphs) or graphs.fail:
            return self.step(*given)
        if shape not in graphs.captured and self._repays(shape, graphs):
            try:
                graphs.captured[shape] = _Captured(self.step, given, graphs.pool())
            except RuntimeError as error:  # nothing was computed
                LOGGER.info("steps are not captured as a CUDA graph: %s", error)
                graphs.fail = True
        self.left[shape] -= 1
        graphs.done[shape] += 1
        if shape in graphs.captured:
            return graphs.captured[shape].replay(given)
        before = [generator.get_state() for generator in generators()]
        found = self.step(*given)
        # Whether a replay draws what the step would was not seen on a GPU yet.
        if any(not torch.equal(g.get_state(), b) for g, b in zip(generators(), before, strict=True)):
            graphs.fail = True
        return found

    def _repays(self, shape: Hashable, graphs: Graphs) -> bool:
        done = graphs.done[shape]
        possible = not graphs.fail and len(graphs.captured) < MOST
        return possible and done >= WARM_UP and done + self.left[shape] >= ENOUGH


class _Captured:
    """A step that was captured, and the tensors that it reads and writes."""

    def __init__(self, step: Step, given: Iterable[Any], pool: Any) -> None:
        self.given = [one.clone() if isinstance(one, torch.Tensor) else one for one in given]
        self.graph, self.found = _capture(lambda: step(*self.given), pool)

    def replay(self, given: Iterable[Any]) -> tuple[torch.Tensor, ...]:
        """Take the step with these tensors. Return its loss and outputs."""
        for own, tensor in zip(self.given, given, strict=True):
            if isinstance(own, torch.Tensor):
                own.copy_(tensor)
        self.graph.replay()
        return tuple(one.clone() for one in self.found)


def _capture(
    compute: Callable[[], tuple[torch.Tensor, ...]], pool: Any = None
) -> tuple[torch.cuda.CUDAGraph, tuple[torch.Tensor, ...]]:
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


def _pool(model: ref[nn.Module]) -> Any:
    """Return the memory of a model's graphs, of its own: models may train at the same time."""
    known = model()
    assert known is not None
    if known not in _ANCHORS:
        _ANCHORS[known] = _capture(lambda: (torch.zeros(1, device="cuda"),))[0]
    return _ANCHORS[known].pool()
