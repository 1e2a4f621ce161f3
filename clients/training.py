"""The local training loop, and evaluation."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from .examples import Examples
from .objectives import LocalWork, Objective

EVALUATION_BATCH = 1000


@dataclass(frozen=True)
class LocalTraining:
    """How a client trains in one round.

    Parameters
    ----------
    epochs : int
        Passes over the client's examples.
    batch_size : int
        0 takes all examples in one batch.
    optimizer : str
        ``sgd`` or ``adam``; its state starts anew each round.
    momentum, weight_decay : float
        Of SGD; weight decay also of Adam.
    clip_norm : float
        Upper bound of the gradient's L2 norm; 0 for none.
    """

    epochs: int = 1
    batch_size: int = 32
    optimizer: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float = 0.0

    def make_optimizer(self, parameters: Iterable[Tensor], learning_rate: float) -> "Optimizer":
        if self.optimizer == "adam":
            return torch.optim.Adam(parameters, learning_rate, weight_decay=self.weight_decay)
        return _Sgd(list(parameters), learning_rate, self.momentum, self.weight_decay)


class Optimizer(Protocol):
    """What a training loop needs of an optimiser."""

    def step(self) -> object:
        """Move the parameters by their gradients."""

    def zero_grad(self) -> None:
        """Forget the gradients."""


class _Sgd:
    """`torch.optim.SGD`, bit for bit, without what around its arithmetic costs more than the step itself."""

    def __init__(
        self, parameters: list[Tensor], learning_rate: float, momentum: float, weight_decay: float
    ) -> None:
        self.parameters = parameters
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.buffers: dict[Tensor, Tensor] = {}

    @torch.no_grad()
    def step(self) -> None:
        reached = [p for p in self.parameters if p.grad is not None]
        steps = [p.grad for p in reached if p.grad is not None]
        if self.weight_decay:
            steps = list(torch._foreach_add(steps, reached, alpha=self.weight_decay))
        if self.momentum:
            for p, step in zip(reached, steps, strict=True):
                if p in self.buffers:
                    self.buffers[p].mul_(self.momentum).add_(step)
                else:
                    self.buffers[p] = step.clone()
            steps = [self.buffers[p] for p in reached]
        torch._foreach_add_(reached, steps, alpha=-self.learning_rate)

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None


@dataclass(frozen=True, eq=False)
class LocalRun:
    """One client's training in one round: all that it needs but the model.

    ``seed`` decides everything random (shuffling, dropout).
    """

    examples: Examples
    training: LocalTraining
    objective: Objective
    learning_rate: float
    seed: tuple[int, ...]

    def generator(self) -> np.random.Generator:
        """The source of the run's randomness, from its start."""
        return np.random.default_rng(list(self.seed))

    def epochs(self, rng: np.random.Generator) -> Iterator[list[NDArray[np.int64]]]:
        """The batches of each epoch, as indices into the examples."""
        for _ in range(self.training.epochs):
            yield list(self.examples.batches(self.training.batch_size, rng))

    def work(self, steps: int) -> LocalWork:
        """What the objective is told of the run when it is over."""
        momentum = self.training.momentum if self.training.optimizer == "sgd" else None
        return LocalWork(steps, self.learning_rate, momentum)

    def metrics(self, steps: int, loss: float, correct: float) -> dict[str, float]:
        """``train-loss`` (the cross-entropy) and ``train-accuracy``, means over the examples of the last
        epoch, from their sums; and ``local-steps``, the optimiser's steps."""
        count = len(self.examples)
        return {"train-loss": loss / count, "train-accuracy": correct / count, "local-steps": steps}


def train_model(model: nn.Module, run: LocalRun) -> dict[str, float]:
    """Train in place; the run's metrics."""
    rng = run.generator()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = run.training.make_optimizer(parameters, run.learning_rate)
    steps = 0
    model.train()
    with seeded(int(rng.integers(2**63))):
        for batches in run.epochs(rng):
            losses, outputs, answers = [], [], []
            for images, labels in run.examples.load(batches):
                optimizer.zero_grad()
                loss, output = run.objective.loss(model, images, labels)
                torch.autograd.backward(loss)
                run.objective.correct_gradients()
                if run.training.clip_norm:
                    nn.utils.clip_grad_norm_(parameters, run.training.clip_norm)
                optimizer.step()
                steps += 1
                losses.append(loss.detach())
                outputs.append(output.detach())
                answers.append(labels)
    optimizer.zero_grad()
    hits = torch.cat(outputs).argmax(1) == torch.cat(answers)
    loss = torch.stack(losses) @ torch.tensor([float(len(a)) for a in answers]).to(losses[0])
    return run.metrics(steps, loss.item(), hits.sum().item())


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's global generators, seeded, the GPU's too if it is in use; afterwards as they were before."""
    generators = [torch.default_generator, *torch.cuda.default_generators]
    before = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(seed)
    try:
        yield
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)


def load_entries(targets: Mapping[str, Tensor], entries: Mapping[str, NDArray]) -> None:
    """Copy a whole state dict into the tensors of a model.

    Raises
    ------
    KeyError, ValueError
        When an entry is missing or has another shape.
    """
    with torch.no_grad():
        for name, target in targets.items():
            entry = entries[name]
            if target.shape != entry.shape:
                raise ValueError(f"{name} has shape {entry.shape}, expected {tuple(target.shape)}")
            target.copy_(torch.from_numpy(np.asarray(entry)))


def evaluate_splits(model: nn.Module, examples: Mapping[str, Examples], splits: str) -> dict[str, float]:
    """Evaluate on comma-separated splits: the first one's metrics as ``loss``, ``accuracy`` and
    ``eval-examples``, how many there were; the others' as ``SPLIT-loss``, ``SPLIT-accuracy`` and
    ``SPLIT-examples``."""
    metrics: dict[str, float] = {}
    for i, split in enumerate(filter(None, splits.split(","))):
        prefix = f"{split}-" if i else ""
        found = evaluate_model(model, examples[split])
        metrics |= {prefix + name: value for name, value in found.items()}
        metrics[f"{split if i else 'eval'}-examples"] = len(examples[split])
    return metrics


def evaluate_model(model: nn.Module, examples: Examples) -> dict[str, float]:
    """Mean cross-entropy ``loss`` and ``accuracy`` (in 0..1) over the examples, in evaluation mode.

    What a model draws at random even so, it draws alike each time.
    """
    loss, correct = 0.0, 0
    model.eval()
    with torch.inference_mode(), seeded(0):
        for images, labels in examples.load(examples.batches(EVALUATION_BATCH)):
            output = model(images)
            loss += functional.cross_entropy(output, labels, reduction="sum").item()
            correct += int((output.argmax(1) == labels).sum())
    return {"loss": loss / len(examples), "accuracy": correct / len(examples)}
