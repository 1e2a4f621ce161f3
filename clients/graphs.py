"""Steps of training that a GPU repeats as a CUDA graph, without PyTorch's calls."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from functools import cache
from typing import Any, Protocol
from weakref import WeakKeyDictionary

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
    used : object
        What captured steps use and does not end with a call.
    """

    def __init__(self, used: object = None) -> None:
        self.used = used
        self.captured: dict[Hashable, _Captured] = {}
        self.done: Counter[Hashable] = Counter()
        self.fail = False


_LASTING: WeakKeyDictionary[nn.Module, tuple[Hashable, Graphs]] = WeakKeyDictionary()
"""The graphs of models, with what they were captured for; they end with their model."""


def graphs_of(model: nn.Module, run: Repeatable) -> Graphs | None:
    """Return the graphs of a model, in the mode in which it trains; None where steps are not replayed.

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
        (run.training, run.learning_rate),
        tuple(parameter.requires_grad for parameter in model.parameters()),
        repr([_plain(module) for module in model.modules()]),
        (loss, type(objective.problem), repr(settings)),
        (cudnn.enabled, cudnn.benchmark, cudnn.deterministic, torch.are_deterministic_algorithms_enabled()),
    )
    if model not in _LASTING or _LASTING[model][0] != same:
        _LASTING[model] = same, Graphs(criterion)
    return _LASTING[model][1]


def may_repeat(model: nn.Module, run: Repeatable) -> bool:
    """Whether the steps of this run do the same on a GPU each time.

    The optimisers of torch.optim count steps on the CPU; what others have written may do so, and so may an
    objective that does not say that it is the same function for all clients. In half precision the loss's
    scale goes by the gradients.
    """
    if torch.device(run.examples.device).type != "cuda" or not run.training.replays:
        return False
    objective = run.objective
    parts = [objective, objective.criterion, objective.problem, *model.modules()]
    return (
        not torch.is_anomaly_enabled()  # it looks at every value
        and run.training.optimizer == PLAIN
        and not run.mechanism
        and vars(type(objective)).get("elementwise") is True
        and vars(type(objective.criterion)).get("alike") is True
        and not is_half(precision_of(model))
        and all(type(part).__module__.partition(".")[0] in _KNOWN for part in parts)
        and all(map(_is_its_class, model.modules()))
        and not any(p._backward_hooks or p._post_accumulate_grad_hooks for p in model.parameters())
        and not have_all_modules_a_hook()
    )


def have_all_modules_a_hook() -> bool:
    """Whether PyTorch calls a hook on every module, whoever's it is."""
    known = vars(torch.nn.modules.module).items()
    return any(value for key, value in known if key.startswith("_global_") and "hook" in key)


def has_own_method(module: nn.Module) -> bool:
    """Whether a method of the module's class is replaced on this module."""
    return any(callable(getattr(type(module), key, None)) for key in vars(module))


def _is_its_class(module: nn.Module) -> bool:
    """Whether a module computes what its class does, and without looking at a number of steps on the GPU."""
    return not (
        any(value for key, value in vars(module).items() if "hook" in key)
        or has_own_method(module)
        or isinstance(module, torch.jit.ScriptModule)
        or getattr(module, "momentum", 0) is None  # BatchNorm's: the mean of all batches
    )


def _plain(module: nn.Module) -> list[tuple[str, Any]]:
    """Return the numbers and words that a module goes by, such as its mode and its momentum."""
    return [(k, v) for k, v in vars(module).items() if v is None or isinstance(v, bool | int | float | str)]


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
        key = shape, *((one.shape, one.dtype) for one in given if isinstance(one, torch.Tensor))
        if key not in graphs.captured and self._repays(shape, key, graphs):
            try:
                graphs.captured[key] = _Captured(self.step, given)
            except RuntimeError as error:  # nothing was computed
                LOGGER.info("steps are not captured as a CUDA graph: %s", error)
                graphs.fail = True
        self.left[shape] -= 1
        graphs.done[key] += 1
        if key in graphs.captured:
            return graphs.captured[key].replay(given)
        before = [generator.get_state() for generator in generators()]
        found = self.step(*given)
        # Whether a replay draws what the step would was not seen on a GPU yet.
        if any(not torch.equal(g.get_state(), b) for g, b in zip(generators(), before, strict=True)):
            graphs.fail = True
        return found

    def _repays(self, shape: Hashable, key: Hashable, graphs: Graphs) -> bool:
        done = graphs.done[key]
        return len(graphs.captured) < MOST and done >= WARM_UP and done + self.left[shape] >= ENOUGH


class _Captured:
    """A step that was captured, and the tensors that it reads and writes."""

    def __init__(self, step: Step, given: Iterable[Any]) -> None:
        self.given = [one.clone() if isinstance(one, torch.Tensor) else one for one in given]
        self.graph, self.found = _capture(lambda: step(*self.given), _pool())

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


@cache
def _anchor() -> torch.cuda.CUDAGraph:
    """A graph that keeps the memory pool of all others alive, so that later calls use it again."""
    return _capture(lambda: (torch.zeros(1, device="cuda"),))[0]


def _pool() -> Any:
    return _anchor().pool()
