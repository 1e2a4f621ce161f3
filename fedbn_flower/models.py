"""Networks by name. A model is a function of what its input looks like; one registry line adds it.

One that has no argument to be given is called without: a class of modules with a fixed shape will do.
"""

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parameter import is_lazy

from .errors import UserError, not_allowed
from .registry import Registry, told_in_one_line


@dataclass(frozen=True)
class InputSpec:
    """Images of shape (channels, height, width), in one of ``classes`` classes."""

    channels: int
    height: int
    width: int
    classes: int

    @classmethod
    def parse(cls, dataset: str) -> "InputSpec | None":
        """What ``shape:CHANNELSxHEIGHTxWIDTH:CLASSES`` says; None for any other dataset.

        Raises
        ------
        UserError
            When it does not say it in whole numbers >= 1.
        """
        if not dataset.startswith("shape:"):
            return None
        match = re.fullmatch(r"shape:([1-9]\d*)x([1-9]\d*)x([1-9]\d*):([1-9]\d*)", dataset)
        if not match:
            raise not_allowed("dataset", dataset, "shape:CHANNELSxHEIGHTxWIDTH:CLASSES (shape:1x28x28:10)")
        return cls(*map(int, match.groups()))

    def as_dataset(self) -> str:
        """The words that `parse` takes."""
        return f"shape:{self.channels}x{self.height}x{self.width}:{self.classes}"

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, self.height, self.width

    @property
    def size(self) -> int:
        return self.channels * self.height * self.width

    def __str__(self) -> str:
        return f"{self.channels}x{self.height}x{self.width} in {self.classes} classes"


def mlp_bn(spec: InputSpec) -> nn.Module:
    """784-128-BN-ReLU-10 on 28x28 images; the first width follows the image size."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(spec.size, 128),
        nn.BatchNorm1d(128),
        nn.ReLU(),
        nn.Linear(128, spec.classes),
    )


def two_nn(spec: InputSpec) -> nn.Module:
    """McMahan et al.'s 2NN: two hidden layers of 200 units (199,210 parameters on MNIST)."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(spec.size, 200),
        nn.ReLU(),
        nn.Linear(200, 200),
        nn.ReLU(),
        nn.Linear(200, spec.classes),
    )


def cnn(spec: InputSpec) -> nn.Module:
    """McMahan et al.'s CNN: two 5x5 convolutions (32, 64), each max-pooled, 512 units (1,663,370)."""
    return nn.Sequential(
        nn.Conv2d(spec.channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (spec.height // 4) * (spec.width // 4), 512),
        nn.ReLU(),
        nn.Linear(512, spec.classes),
    )


def cnn_bn(spec: InputSpec) -> nn.Module:
    """The digit CNN of FedBN (Li et al. 2021, appendix): BatchNorm after every layer but the last."""

    def convolution(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 5, padding=2), nn.BatchNorm2d(outputs), nn.ReLU()]

    def dense(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]

    return nn.Sequential(
        *convolution(spec.channels, 64),
        nn.MaxPool2d(2),
        *convolution(64, 64),
        nn.MaxPool2d(2),
        *convolution(64, 128),
        nn.Flatten(),
        *dense(128 * (spec.height // 4) * (spec.width // 4), 2048),
        *dense(2048, 512),
        nn.Linear(512, spec.classes),
    )


class _ResidualBlock(nn.Module):
    """Two 3x3 convolutions with BatchNorm; the shortcut subsamples and pads with zeros (option A)."""

    lockstep_safe = True

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.stride = outputs // inputs
        self.conv1 = nn.Conv2d(inputs, outputs, 3, self.stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        shortcut = x[:, :, :: self.stride, :: self.stride]
        padding = (y.shape[1] - x.shape[1]) // 2
        return functional.relu(y + functional.pad(shortcut, (0, 0, 0, 0, padding, padding)))


def resnet20(spec: InputSpec) -> nn.Module:
    """ResNet-20 for small images (He et al. 2016, section 4.2; 269,722 parameters on CIFAR-10)."""
    widths = [16, 16, 16, 32, 32, 32, 64, 64, 64]
    blocks = [_ResidualBlock(i, o) for i, o in zip([16, *widths], widths, strict=False)]
    return nn.Sequential(
        nn.Conv2d(spec.channels, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, spec.classes),
    )


MODELS: dict[str, Callable[[InputSpec], nn.Module]] = {
    "mlp-bn": mlp_bn,
    "2nn": two_nn,
    "cnn": cnn,
    "cnn-bn": cnn_bn,
    "resnet20": resnet20,
}

MODEL = Registry("model", MODELS)

DTYPES = frozenset(
    {
        torch.float16, torch.float32, torch.float64,
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    }
)  # fmt: skip
"""What an entry may be."""


def build_model(name: str, spec: InputSpec, softmax_output: bool, seed: int) -> nn.Module:
    """The network with the run's initial weights, the same in every process for the same seed.

    Raises
    ------
    UserError
        When its function raises, it has lazy modules that such images do not give their shapes, or entries of
        a type that NumPy does not have, or that has no mean.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        with warnings.catch_warnings(action="ignore"):  # images too small are refused by name, later
            with told_in_one_line("model", name):
                model = _made(name, spec)
            if not isinstance(model, nn.Module):
                raise not_allowed("model", name, f"a function that returns an nn.Module, not {model!r}")
            if _lazy_entries(model):
                _materialise(model, name, spec)
            for entry, value in model.state_dict().items():
                if value.dtype not in DTYPES:
                    raise UserError(f"model: {name!r} has {entry} of {value.dtype}, which cannot be averaged")
    return nn.Sequential(model, nn.Softmax(dim=1)) if softmax_output else model


def _made(name: str, spec: InputSpec) -> object:
    """What the function of that name makes; one that has no argument that must be given is called without."""
    function: Callable[..., nn.Module] = MODEL.find(name)
    if isinstance(function, nn.Module):
        made = f"function that makes a {type(function).__name__}"
        raise UserError(f"model: a module itself is not allowed; expected a {made}")
    try:
        arguments = signature(function).parameters.values()
    except ValueError:  # not every callable tells
        return function(spec)
    if any(a.default is a.empty and a.kind not in (a.KEYWORD_ONLY, a.VAR_KEYWORD) for a in arguments):
        return function(spec)
    return function()


def does_not_fit(name: str, spec: InputSpec, error: Exception) -> UserError:
    """The error for a model that raised on images of this shape."""
    return UserError(f"model: {name!r} does not fit images of {spec}: {' '.join(str(error).split())}")


def _lazy_entries(model: nn.Module) -> list[str]:
    entries = [*model.named_parameters(), *model.named_buffers()]
    return [name for name, entry in entries if is_lazy(entry)]


def _materialise(model: nn.Module, name: str, spec: InputSpec) -> None:
    """Give lazy modules their shapes and weights: by one forward, without a trace in statistics."""
    model.eval()
    try:
        with torch.no_grad():
            model(torch.zeros((2, *spec.shape)))
    except Exception as error:
        raise does_not_fit(name, spec, error) from error
    model.train()
    if lazy := _lazy_entries(model):
        raise UserError(f"model: {name!r} has lazy modules that its forward does not use: {', '.join(lazy)}")
