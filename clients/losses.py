"""Training losses.

Label smoothing: Szegedy et al. 2016, "Rethinking the Inception Architecture" (arXiv 1512.00567).
Focal loss: Lin et al. 2017, "Focal Loss for Dense Object Detection" (arXiv 1708.02002).
Class-balanced loss: Cui et al. 2019, "Class-Balanced Loss Based on Effective Number of Samples".
Soft Dice: Milletari et al. 2016, "V-Net" (arXiv 1606.04797); Isensee et al. 2021, "nnU-Net" (1904.08128).
Logit adjustment: Menon et al. 2021, "Long-Tail Learning via Logit Adjustment" (arXiv 2007.07314).
CALC, the loss for FedSat: margins from the frequencies and the confusion of classes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any, ClassVar

from fedbn_flower.core.ground.settings import set_values, setting

from .examples import Examples
from .modules.lazy_torch import functional, torch
from .problems import Classification, Problem
from .problems.segmentation import VOID


class Loss:
    """The problem's standard loss; the base of all training losses.

    Most subclasses are losses of classification. Held-out examples are always evaluated by the standard loss.
    Each client gets a new object each round. Its settings are attributes.

    Parameters
    ----------
    problem : Problem
        The learning problem.
    examples : Examples, optional
        The client's training examples.
    settings : Mapping[str, object]
        Values of the declared settings, by attribute; the others have their defaults.
    """

    helps: ClassVar[tuple[str, ...]] = ("baseline",)
    """What it is for: names of `core.methods.PURPOSES`, the main one first. Not inherited."""
    requires: ClassVar[Mapping[str, Collection[object]]] = {}
    """Requirements on the run configuration: key -> allowed values."""
    of_classes: ClassVar[bool] = False
    """Whether it needs (b, classes) outputs and class indices (b,)."""
    of_masks: ClassVar[bool] = False
    """Whether it needs the outputs and targets of `problems.Segmentation`."""
    alike: ClassVar[bool] = True
    """Whether it is the same function for all clients, as lockstep needs. Not inherited: each class sets it
    for its own method."""

    def __init__(
        self,
        problem: Problem | None = None,
        examples: Examples | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.problem = problem or Classification()
        self.examples = examples
        self._counts: torch.Tensor | None = None
        self.confusion: torch.Tensor | None = None
        """The client's running confusion matrix, (classes, classes), if its objective keeps one."""
        set_values(self, settings or {})

    def __call__(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        """Return the loss of a batch, from the model's output, (b, ...), and the targets, (b, ...).

        ``reduction`` is as in PyTorch: ``mean`` for a scalar, ``none`` for the loss of each example, (b,).
        """
        return self.problem.loss(output, targets, reduction)

    @property
    def training_targets(self) -> torch.Tensor:
        """The targets of the client's training examples, (n, ...).

        Raises
        ------
        ValueError
            Without the client's examples.
        """
        if self.examples is None:
            raise ValueError(f"{type(self).__name__} needs the client's examples")
        return self.examples.targets

    def class_counts(self, output: torch.Tensor) -> torch.Tensor:
        """Return the number of training examples of each class, float (classes,), as the output's columns.

        Raises
        ------
        ValueError
            Without the client's examples.
        """
        if self._counts is None:
            self._counts = torch.bincount(self.training_targets, minlength=output.shape[1]).to(output)
        return self._counts

    def frequencies(self, output: torch.Tensor) -> torch.Tensor:
        """Return the classes' shares of the client's training examples, (classes,).

        An absent class counts as one example, so that its logarithm is finite.
        """
        counts = self.class_counts(output)
        return counts.clamp(min=1) / counts.sum()


def reduced(losses: torch.Tensor, reduction: str) -> torch.Tensor:
    """Reduce the losses of examples, (b,), by ``reduction``."""
    return losses.mean() if reduction == "mean" else losses


class LabelSmoothing(Loss):
    """Cross-entropy to ``(1 - s) one-hot + s / classes`` (section 7)."""

    purpose = "For labels with mistakes, and against overconfidence."
    helps = ("wrong-labels",)
    paper = "szegedy2016rethinking"

    of_classes = True
    alike = True

    smoothing: float = setting(0.1, ge=0, lt=1, description="share of the target spread over all classes")

    def __call__(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        return functional.cross_entropy(output, targets, label_smoothing=self.smoothing, reduction=reduction)


class Focal(Loss):
    """``-(1 - p_y)^gamma log p_y`` (equation 4): well-classified examples have little weight."""

    purpose = "For many easy examples: hard ones count more."
    helps = ("rare-classes",)
    paper = "lin2017focal"

    of_classes = True
    alike = True

    gamma: float = setting(
        2.0, ge=0, alias="focal-gamma", description="exponent that down-weights well-classified examples"
    )

    def __call__(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        logs = functional.log_softmax(output, 1).gather(1, targets.unsqueeze(1)).squeeze(1)
        missed = (-logs.expm1()).clamp(min=torch.finfo(logs.dtype).tiny)  # at 0 a root has no gradient
        return reduced(-(missed**self.gamma) * logs, reduction)


class ClassBalanced(Loss):
    """Cross-entropy, a class of n examples weighted by ``(1 - beta) / (1 - beta^n)`` (equation 12).

    arXiv 1901.05555. n is the number of the client's examples of the class. The weights of the classes that
    it has have mean 1.
    """

    purpose = "For rare classes: each class counts about alike."
    helps = ("rare-classes",)
    paper = "cui2019classbalanced"

    of_classes = True

    beta: float = setting(
        0.9999, ge=0, lt=1, alias="cb-beta", description="decay of the value of further examples of a class"
    )

    def __call__(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        counts = self.class_counts(output).double()
        present = counts > 0
        weights = torch.where(present, (1 - self.beta) / (1 - self.beta ** counts.clamp(min=1)), 0.0)
        weights = (weights * present.sum() / weights.sum()).to(output)
        return reduced(
            weights[targets] * functional.cross_entropy(output, targets, reduction="none"), reduction
        )


class LogitAdjusted(Loss):
    """Cross-entropy of ``z + tau log q`` (equation 10), q the classes' shares of the client's examples.

    A class that the client lacks counts as one example.
    """

    purpose = "For rare classes at a client: its share of classes is allowed for."
    helps = ("rare-classes", "label-skew")
    paper = "menon2021logit"

    of_classes = True

    tau: float = setting(1.0, ge=0, alias="logit-tau", description="weight of the log frequencies")

    def __call__(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        adjusted = output + self.tau * self.frequencies(output).log()
        return functional.cross_entropy(adjusted, targets, reduction=reduction)


FREQUENCY, PULL, CONFUSED = 0.1, 0.05, 0.5


class Calc(Loss):
    """``0.95 (-z_y + log sum_j exp(z_j + D_yj)) + 0.05 CE(z - 0.5 M_y)`` of logits ``z - 0.1 q^(-1/4)``.

    q are the classes' shares of the client's examples; an absent class counts as one example. D comes from
    the running confusion C: symmetrised, rows normalised to sum 1, diagonal 0, divided by its largest entry.
    M is the same for the softmax of C's rows. D and M have no gradient. Without C, as in the training of a
    personal model, they are 0.
    """

    purpose = "For classes that a client confuses (with objective fedsat)."
    helps = ("label-skew",)
    paper = "chowdhury2024fedsat"

    requires: ClassVar = {"objective": {"fedsat"}}
    of_classes = True

    def __call__(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        z = output - FREQUENCY * self.frequencies(output) ** -0.25
        if self.confusion is None:
            return functional.cross_entropy(z, targets, reduction=reduction)
        margins, confused = margins_of(self.confusion), margins_of(self.confusion.softmax(1))
        contrast = torch.logsumexp(z + margins[targets], 1) - z.gather(1, targets.unsqueeze(1)).squeeze(1)
        usual = functional.cross_entropy(z - CONFUSED * confused[targets], targets, reduction="none")
        return reduced((1 - PULL) * contrast + PULL * usual, reduction)


def margins_of(confusion: torch.Tensor) -> torch.Tensor:
    """Return (C + C^T) / 2 with rows normalised to sum 1, diagonal 0, divided by its largest entry."""
    both = (confusion + confusion.T) / 2
    rows = both / both.sum(1, keepdim=True)
    rows = rows - torch.diag(rows.diagonal())
    return rows / rows.max()


class WeightedBce(Loss):
    """Binary cross-entropy in which a label's positive examples weigh ``negatives / positives``.

    These are the counts of the client's training examples, each at least 1.
    """

    purpose = "For rare labels: positive examples count as much as negative ones."
    helps = ("rare-classes",)

    requires: ClassVar = {"problem": {"multi-label"}}

    def __call__(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        weights = self.positive_weights.to(output)
        each = functional.binary_cross_entropy_with_logits(
            output, targets, pos_weight=weights, reduction="none"
        )
        return reduced(each.mean(1), reduction)

    @cached_property
    def positive_weights(self) -> torch.Tensor:
        """The weight of a positive example of each label, float32 (labels,)."""
        targets = self.training_targets
        positives = targets.sum(0)
        return (len(targets) - positives).clamp(min=1) / positives.clamp(min=1)


SMOOTH = 1e-5


class Dice(Loss):
    """``1 - mean over classes of (2 sum p g + s) / (sum p + sum g + s)``, sums over an image's pixels.

    p are the probabilities of a class, g is 1 where the mask has it, s is 1e-5. Void pixels are left out, and
    the background is a class. Section 3 of V-Net has squares in the denominator; nnU-Net, as here, has none.
    nnU-Net leaves out the background. A batch's loss is the mean over its images.
    """

    purpose = "For masks of small structures: overlap instead of pixels."
    helps = ("rare-classes",)
    paper = "milletari2016vnet"

    of_masks = True
    alike = True

    def __call__(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        return reduced(soft_dice_loss(output, targets), reduction)


class DiceCe(Loss):
    """The soft Dice loss plus cross-entropy, as in nnU-Net (``loss dice`` says of which classes)."""

    purpose = "For masks: overlap and pixels, the usual choice."
    helps = ("rare-classes",)
    paper = "isensee2021nnunet"

    of_masks = True
    alike = True

    def __call__(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        dice = reduced(soft_dice_loss(output, targets), reduction)
        return dice + self.problem.loss(output, targets, reduction)


def soft_dice_loss(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the soft Dice loss of each image, (b,), of outputs (b, classes, ...) and targets (b, ...)."""
    counted = targets != VOID
    classes = functional.one_hot(targets.long().where(counted, 0), output.shape[1]).movedim(-1, 1)
    p = (output.softmax(1) * counted.unsqueeze(1)).flatten(2)
    g = (classes * counted.unsqueeze(1)).to(p).flatten(2)
    dice = (2 * (p * g).sum(2) + SMOOTH) / (p.sum(2) + g.sum(2) + SMOOTH)
    return 1 - dice.mean(1)


LOSSES: dict[str, type[Loss]] = {
    "auto": Loss,
    "class-balanced": ClassBalanced,
    "focal": Focal,
    "label-smoothing": LabelSmoothing,
    "logit-adjusted": LogitAdjusted,
    "calc": Calc,
    "dice": Dice,
    "dice-ce": DiceCe,
    "weighted-bce": WeightedBce,
}
"""Built-in losses by name. To add one, import it above and enter it here."""

__all__ = ["LOSSES", "Loss"]
