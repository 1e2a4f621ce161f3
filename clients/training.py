"""One client's task, its training in a round, and the local training loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.core.ground.wire import LOCAL_STEPS

from .examples import LOADED, Examples, Indices
from .graphs import Steps, graphs_of
from .losses import Loss
from .modules.clipping import before_head, clip_adaptively
from .modules.frozen import train_mode
from .modules.lazy_torch import nn, torch
from .modules.optimizers import STACKABLE, Optimizer, make_optimizer, name_of
from .modules.precision import precision_of
from .modules.rng import seeded
from .modules.surroundings import usual_surroundings
from .objectives import LocalWork, Objective
from .objectives.base import Plain
from .problems import Classification, Problem
from .problems.evaluation import derived_of, predictions_of, scores_of
from .returned import WrongResult

if TYPE_CHECKING:
    from .modules.dp_sgd import ExampleMechanism


Run = TypeVar("Run", bound="LocalRun")


@dataclass(frozen=True)
class LocalTraining:
    """The settings of a client's local training.

    Parameters
    ----------
    epochs : int
        Passes over the client's examples.
    batch_size : int
        Examples per batch; 0 for all examples.
    optimizer : str
        An optimiser of torch.optim, see `modules.optimizers`; its state is reset each round.
    momentum, weight_decay : float
        Those of the optimiser, if it has such arguments.
    clip_norm : float
        Upper bound of the gradient's L2 norm; 0 for none.
    agc : float
        Upper bound of the norms of single outputs' gradients over those of their weights, see
        `modules.clipping`; 0 for none.
    replays : bool
        Whether a GPU may replay steps, see `graphs`.
    """

    epochs: int = 1
    batch_size: int = 32
    optimizer: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    agc: float = 0.0
    replays: bool = True

    def make_optimizer(self, parameters: Iterable[torch.Tensor], learning_rate: float) -> Optimizer:
        """Return the optimiser with a new state; ValueError as `optimizers.make_optimizer`."""
        return make_optimizer(self.optimizer, parameters, learning_rate, self.momentum, self.weight_decay)

    @property
    def stackable(self) -> bool:
        """Whether a step on the stacked parameters of many clients equals a step for each client."""
        return name_of(self.optimizer) in STACKABLE

    def steps(self, examples: Examples, share: float = 1.0) -> int:
        """Return the number of optimiser steps on these examples: ``max(1, ceil(share * all))``."""
        return max(1, math.ceil(share * self.epochs * examples.num_batches(self.batch_size)))


def all_work(server_round: int) -> float:
    """Return 1.0: the client does all of its local work in every round."""
    return 1.0


@dataclass(frozen=True, eq=False)
class LocalTask:
    """The model, data and settings of one client.

    Parameters
    ----------
    model : nn.Module
        The clients of a process may share it: every entry is loaded before use.
    initial : Mapping[str, NDArray]
        The state dict of the run's initial model, the same for all clients.
    train : Examples
        The client's own training examples.
    evaluation : Mapping[str, Examples]
        Held-out examples by split name (``test``, ``val``).
    training : LocalTraining
        The settings of local training.
    seed : tuple[int, ...]
        The run's seed and the partition id. All randomness derives from it and the round.
    objective : type[Objective]
        The local objective.
    problem : Problem
        The learning problem: its loss and metrics.
    loss : type[Loss]
        The training loss.
    loss_settings : Mapping[str, object]
        Values of the settings that the loss declares, by attribute.
    client_settings : Mapping[str, object]
        Values of the settings that the client's class declares, by attribute.
    share : Callable[[int], float]
        The share of its local work that it does in a round, in (0, 1], by round number; 1 by default.
    tells_classes : bool
        Whether the client reports counts by class of held-out examples when the server requests them.
    constant : frozenset[str]
        The entries that never change, see `modules.frozen.constant_entries`: they are neither shared nor
        local, and have their values in ``initial``. None by default.
    private : Callable[[int], ExampleMechanism], optional
        The mechanism of example-level differential privacy, by round number; none by default.
    units : NDArray, optional
        int64 (n,), the unit of each training example, from 0 on: with ``private``, all examples of a unit are
        protected together. By default each by itself.
    """

    model: nn.Module
    initial: Mapping[str, NDArray]
    train: Examples
    evaluation: Mapping[str, Examples]
    training: LocalTraining
    seed: tuple[int, int]
    objective: type[Objective] = Plain
    problem: Problem = field(default_factory=Classification)
    loss: type[Loss] = Loss
    loss_settings: Mapping[str, Any] = field(default_factory=dict)
    client_settings: Mapping[str, Any] = field(default_factory=dict)
    share: Callable[[int], float] = all_work
    tells_classes: bool = True
    constant: frozenset[str] = frozenset()
    private: Callable[[int], ExampleMechanism] | None = None
    units: Indices | None = None

    @property
    def size(self) -> int:
        """The number of training examples, or of privacy units, whose numbers of examples are private."""
        return len(self.train) if self.units is None else len(np.unique(self.units))


@dataclass(frozen=True, eq=False)
class LocalRun:
    """One client's training in one round, without the model.

    ``seed`` determines shuffling and dropout. ``share`` is the share of the work that is done, in (0, 1].
    ``still`` names the modules that are in evaluation mode, see `modules.frozen.still_modules`. ``mechanism``
    is that of example-level differential privacy, and ``units`` are those of `LocalTask`.
    """

    examples: Examples
    training: LocalTraining
    objective: Objective
    learning_rate: float
    seed: tuple[int, ...]
    share: float = 1.0
    still: frozenset[str] = frozenset()
    mechanism: ExampleMechanism | None = None
    units: Indices | None = None

    def generator(self) -> np.random.Generator:
        """Return a new random generator from the run's seed."""
        return np.random.default_rng(list(self.seed))

    def to(self, kind: type[Run], **changed: Any) -> Run:
        """Return a run of another kind, like this one but for some values."""
        return kind(**{one.name: getattr(self, one.name) for one in fields(LocalRun)} | changed)

    def epochs(self, rng: np.random.Generator) -> Iterator[list[NDArray[np.int64]]]:
        """Yield the batches of each epoch, as indices into the examples; ``share`` cuts the last ones."""
        remaining = self.training.steps(self.drawn, self.share)
        for _ in range(self.training.epochs):
            if not remaining:
                return
            batches = list(self._epoch(rng))[:remaining]
            remaining -= len(batches)
            yield batches

    def _epoch(self, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        if self.mechanism:
            steps = self.drawn.num_batches(self.training.batch_size)
            drawn = self.mechanism.batches(len(self.drawn), self.batch_size, steps)
            return drawn if self.units is None else map(self._examples_of, drawn)
        return self.examples.batches(self.training.batch_size, rng)

    @cached_property
    def drawn(self) -> Examples:
        """The examples that batches are drawn from: all, or the first one of each unit in its place."""
        if self.units is None:
            return self.examples
        return replace(self.examples, rows=self.examples.rows[np.unique(self.units, return_index=True)[1]])

    def _examples_of(self, units: Indices) -> Indices:
        """Return the indices of all examples of some units, unit after unit."""
        assert self.units is not None
        found = np.flatnonzero(np.isin(self.units, units))
        return found[np.argsort(self.units[found], kind="stable")]

    def units_of(self, batch: Indices) -> Indices | None:
        """Return the units of the examples of a batch; None if each example is its own unit."""
        return None if self.units is None else self.units[batch]

    @property
    def batch_size(self) -> int:
        """The number of examples in a full batch; with a mechanism, the expected number.

        If units are drawn, it is the number of units.
        """
        return min(self.training.batch_size or len(self.drawn), len(self.drawn))

    def work(self, steps: int) -> LocalWork:
        """Return the finished work, the argument of `Objective.finish`."""
        momentum = self.training.momentum if self.training.optimizer == "sgd" else None
        return LocalWork(steps, self.learning_rate, momentum)

    def metrics(self, steps: int, sums: Mapping[str, float], predictions: float) -> dict[str, float]:
        """Return the training metrics, from sums over the last epoch's predictions.

        They are ``train-loss`` (the objective's loss) and the problem's other metrics as ``train-...``, means
        over these predictions; and ``local-steps``, the number of optimiser steps.
        """
        means = {name: value / predictions for name, value in sums.items()}
        metrics = {**means, **derived_of(self.objective.problem, means)}
        return {**{f"train-{name}": value for name, value in metrics.items()}, LOCAL_STEPS: steps}


@contextmanager
def first_batch(model: nn.Module, run: LocalRun) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield inputs and targets of the first step of `train_model`, with its random state inside the block."""
    rng = run.generator()
    train_mode(model, run.still)
    with seeded(int(rng.integers(2**63))):
        yield next(run.examples.load(next(run.epochs(rng))[:1], training=True))


@usual_surroundings()
def train_model(model: nn.Module, run: LocalRun, frozen: Iterable[nn.Module] = ()) -> dict[str, float]:
    """Train in place and return the metrics. ``frozen`` modules are in evaluation mode.

    A model that computes in float16 has its loss scaled, by a factor that is reset in each call. A step whose
    gradients overflow is skipped, and not counted.

    Raises
    ------
    FloatingPointError
        When the gradients of every step overflow in float16.
    """
    rng = run.generator()
    parameters = [p for p in model.parameters() if p.requires_grad]
    adaptive = before_head(model) if run.training.agc else []
    optimizer = run.training.make_optimizer(parameters, run.learning_rate)
    # It uses an optimiser's `param_groups` and `step`, which ours has, too.
    scaler = torch.amp.GradScaler(run.examples.device, enabled=precision_of(model) is torch.float16)
    count = 0
    train_mode(model, run.still)
    for module in frozen:
        module.training = False

    def step(inputs: torch.Tensor, targets: torch.Tensor, batch: Indices) -> tuple[torch.Tensor, ...]:
        optimizer.zero_grad()
        if run.mechanism:
            loss, output = run.mechanism.backward(
                model, run.objective, inputs, targets, run.batch_size, run.units_of(batch)
            )
        else:
            loss, output = _checked(run.objective, run.objective.loss(model, inputs, targets))
            torch.autograd.backward(scaler.scale(loss))
        scaler.unscale_(optimizer)  # type: ignore[arg-type]
        run.objective.correct_gradients()
        if run.training.agc:
            clip_adaptively(adaptive, run.training.agc)
        if run.training.clip_norm:
            nn.utils.clip_grad_norm_(parameters, run.training.clip_norm)
        scaler.step(optimizer)  # type: ignore[arg-type]
        scaler.update()
        return loss.detach(), output.detach()

    graphs = graphs_of(model, run)
    with seeded(int(rng.integers(2**63))):
        for batches in run.epochs(rng):
            tally = _Tally(run.objective.problem)
            steps = Steps(step, map(len, batches), graphs)
            loaded = run.examples.load(batches, training=True)
            for batch, (inputs, targets) in zip(batches, loaded, strict=True):
                scale = scaler.get_scale()
                loss, output = steps.take(len(batch), inputs, targets, batch)
                count += scaler.get_scale() >= scale
                if len(targets):
                    tally.add(loss, output, targets)
    optimizer.zero_grad()
    if not count:
        raise FloatingPointError("training diverged: every gradient overflows in float16")
    return run.metrics(count, *tally.sums())


def _checked(objective: Objective, returned: object) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch's loss and output.

    Raises
    ------
    WrongResult
        When the loss is not a scalar with a gradient, or the output not a tensor; names the class.
    """
    loss, output = returned if isinstance(returned, tuple) and len(returned) == 2 else (None, None)
    trains = getattr(loss, "ndim", 1) == 0 and getattr(loss, "requires_grad", False)
    if trains and isinstance(loss, torch.Tensor) and isinstance(output, torch.Tensor):
        return loss, output
    scalar = "a scalar tensor with gradient"
    if type(objective).loss is not Objective.loss:
        raise WrongResult(objective, "loss", returned, f"(loss, output): {scalar}, and the model's output")
    if type(objective.criterion).__call__ is not Loss.__call__:
        raise WrongResult(objective.criterion, "__call__", loss, scalar)
    raise WrongResult(objective.problem, "loss", loss, scalar)


class _Tally:
    """Sums of an epoch's losses and scores, computed for many batches at a time."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.batches: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self.held = 0
        self.totals: dict[str, float] = {}
        self.predictions = 0.0

    def add(self, loss: torch.Tensor, output: torch.Tensor, targets: torch.Tensor) -> None:
        """Add a batch: its mean loss, output and targets."""
        self.batches.append((loss, output, targets))
        self.held += output.numel()
        if self.held > LOADED:
            self._reduce()

    def sums(self) -> tuple[dict[str, float], float]:
        """Return the sums by name, ``loss`` first, and the number of predictions."""
        self._reduce()
        return self.totals, self.predictions

    def _reduce(self) -> None:
        if not self.batches:
            return
        losses, outputs, labels = zip(*self.batches, strict=True)
        targets = torch.cat(labels)
        predictions = predictions_of(self.problem, targets)
        counts = torch.stack([part.sum() for part in torch.split(predictions, list(map(len, labels)))])
        scores = scores_of(self.problem, torch.cat(outputs), targets)
        sums = {"loss": torch.stack(losses) @ counts.to(losses[0]), **{n: s.sum() for n, s in scores.items()}}
        for name, value in sums.items():
            self.totals[name] = self.totals.get(name, 0.0) + value.item()
        self.predictions += counts.sum().item()
        self.batches, self.held = [], 0


def load_entries(targets: Mapping[str, torch.Tensor], entries: Mapping[str, NDArray]) -> None:
    """Copy a whole state dict into the tensors of a model.

    Raises
    ------
    KeyError, ValueError
        When an entry is missing (KeyError) or has another shape (ValueError).
    """
    with torch.no_grad():
        for name, target in targets.items():
            entry = entries[name]
            if target.shape != entry.shape:
                raise ValueError(f"{name} has shape {entry.shape}, expected {tuple(target.shape)}")
            target.copy_(torch.from_numpy(np.asarray(entry)))


FINE_TUNING_SEED = 3  # appended to the seed of the round


@dataclass(frozen=True, eq=False, kw_only=True)
class FineTuning(LocalRun):
    """A run of exactly ``steps`` steps, over as many epochs as needed; ``share`` and epochs are ignored."""

    steps: int

    @classmethod
    def like(cls, run: LocalRun, steps: int) -> FineTuning:
        """Return a run like another one, with ``steps`` plain steps and other random batches."""
        return run.to(cls, seed=(*run.seed, FINE_TUNING_SEED), mechanism=None, units=None, steps=steps)

    def epochs(self, rng: np.random.Generator) -> Iterator[list[NDArray[np.int64]]]:
        """Yield the batches of all steps as one epoch."""
        size = self.training.batch_size
        batches = chain.from_iterable(self.examples.batches(size, rng) for _ in range(self.steps))
        yield list(islice(batches, self.steps))
