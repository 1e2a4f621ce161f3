"""The local training loop, and evaluation."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from .examples import Examples
from .objectives import Objective

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

    def make_optimizer(
        self, parameters: Iterable[nn.Parameter], learning_rate: float
    ) -> torch.optim.Optimizer:
        if self.optimizer == "adam":
            return torch.optim.Adam(parameters, learning_rate, weight_decay=self.weight_decay)
        return torch.optim.SGD(
            parameters, learning_rate, momentum=self.momentum, weight_decay=self.weight_decay
        )


def train_model(
    model: nn.Module,
    examples: Examples,
    training: LocalTraining,
    objective: Objective,
    learning_rate: float,
    seed: Iterable[int],
) -> dict[str, float]:
    """Train in place; everything random (shuffling, dropout) derives from ``seed``.

    Returns
    -------
    dict[str, float]
        ``train-loss`` (the cross-entropy) and ``train-accuracy``, means over the examples of the last
        epoch, and ``local-steps``, the optimiser's steps.
    """
    rng = np.random.default_rng(list(seed))
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = training.make_optimizer(parameters, learning_rate)
    steps = 0
    model.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**63)))
        for _ in range(training.epochs):
            total_loss, correct = torch.zeros(()), torch.zeros((), dtype=torch.int64)
            for indices in examples.batches(training.batch_size, rng):
                images, labels = examples.batch(indices)
                optimizer.zero_grad()
                loss, output = objective.loss(model, images, labels)
                torch.autograd.backward(loss)
                objective.correct_gradients()
                if training.clip_norm:
                    nn.utils.clip_grad_norm_(parameters, training.clip_norm)
                optimizer.step()
                steps += 1
                total_loss += loss.detach() * len(labels)
                correct += (output.detach().argmax(1) == labels).sum()
    return {
        "train-loss": total_loss.item() / len(examples),
        "train-accuracy": correct.item() / len(examples),
        "local-steps": steps,
    }


def load_entries(model: nn.Module, entries: Mapping[str, NDArray]) -> None:
    """Copy a whole state dict into the model.

    Raises
    ------
    KeyError, ValueError
        When an entry is missing or has another shape.
    """
    with torch.no_grad():
        for name, target in model.state_dict().items():
            entry = entries[name]
            if target.shape != entry.shape:
                raise ValueError(f"{name} has shape {entry.shape}, expected {tuple(target.shape)}")
            target.copy_(torch.from_numpy(np.asarray(entry)))


def evaluate_splits(model: nn.Module, examples: Mapping[str, Examples], splits: str) -> dict[str, float]:
    """Evaluate on comma-separated splits: the first one's metrics under their plain names (``loss``,
    ``accuracy``), the others' as ``SPLIT-loss``, ``SPLIT-accuracy``."""
    metrics: dict[str, float] = {}
    for i, split in enumerate(filter(None, splits.split(","))):
        prefix = f"{split}-" if i else ""
        found = evaluate_model(model, examples[split])
        metrics |= {prefix + name: value for name, value in found.items()}
    return metrics


def evaluate_model(model: nn.Module, examples: Examples) -> dict[str, float]:
    """Mean cross-entropy ``loss`` and ``accuracy`` (in 0..1) over the examples, in evaluation mode."""
    loss, correct = 0.0, 0
    model.eval()
    with torch.inference_mode():
        for indices in examples.batches(EVALUATION_BATCH):
            images, labels = examples.batch(indices)
            output = model(images)
            loss += functional.cross_entropy(output, labels, reduction="sum").item()
            correct += int((output.argmax(1) == labels).sum())
    return {"loss": loss / len(examples), "accuracy": correct / len(examples)}
