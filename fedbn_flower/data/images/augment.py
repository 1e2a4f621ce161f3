"""Augmentation by name: crops and flips, and transforms of torchvision and of MONAI."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from fedbn_flower.clients.examples import Augment
from fedbn_flower.clients.modules.lazy_torch import torch
from fedbn_flower.clients.modules.rng import seeded
from fedbn_flower.clients.problems.segmentation import VOID

from ...core.errors import not_allowed
from ...core.input_spec import InputSpec
from ...core.named_call import NamedCall, is_named_call, parse_call

KEY, NONE, CROP_FLIP, JOIN = "augment", "none", "crop-flip", "+"
LIBRARIES = ("torchvision", "monai")
CALL = "LIBRARY:NAME:ARGUMENT=VALUE,... of torchvision or monai"
FORMS = f"none, crop-flip, or {CALL}; several joined by {JOIN}"


def calls_of(text: str) -> list[NamedCall]:
    """Return the libraries' transforms that a value of the key names.

    Raises
    ------
    UserError
        For another form, and for a library that is not installed.
    """
    others = [part for part in parts_of(text) if part != CROP_FLIP and text != NONE]
    for part in others:
        if not is_named_call(part, LIBRARIES):
            raise not_allowed(KEY, part, FORMS)
    return [parse_call(KEY, part, CALL) for part in others]


def parts_of(text: str) -> list[str]:
    """Return the names that are joined."""
    return text.split(JOIN)


def transform_of(text: str, spec: InputSpec) -> Augment:
    """Return a transform of a library, tried on a batch.

    Raises
    ------
    UserError
        When there is none, it does not take its arguments, or it does not give back what it got.
    """
    call = parse_call(KEY, text, CALL)
    masks = spec.predicts == "masks"
    made = (_torchvision if call.library == "torchvision" else _monai)(call, masks)
    inputs, targets = spec.zeros(2), torch.zeros((2, *(spec.shape[1:] if masks else ())), dtype=torch.uint8)
    with seeded(0):
        try:
            images, labels = made(inputs, targets)
        except Exception as error:  # whatever a library makes of these images
            call.refuse(error)
    if images.shape != inputs.shape or labels.shape != targets.shape:
        found = "x".join(map(str, images.shape[1:]))
        raise not_allowed(KEY, text, f"one that keeps the size of an image, {spec}; it gives {found}")
    return made


def _torchvision(call: NamedCall, masks: bool) -> OfTorchvision:
    from torchvision.transforms import v2

    cls = getattr(v2, call.name, None)
    if not (inspect.isclass(cls) and issubclass(cls, v2.Transform)):
        raise call.unknown(name for name, value in vars(v2).items() if inspect.isclass(value))
    try:
        return OfTorchvision(cls(**call.arguments), masks)
    except Exception as error:
        call.refuse(error)


def _monai(call: NamedCall, masks: bool) -> OfMonai:
    from monai import transforms

    cls = getattr(transforms, call.name, None)
    if not (inspect.isclass(cls) and issubclass(cls, transforms.RandomizableTransform)):
        names = (name for name in vars(transforms) if name.startswith("Rand"))
        raise call.unknown(names)
    moves = cls.__module__.startswith(("monai.transforms.spatial", "monai.transforms.croppad"))
    nearest = {"mode": "nearest"} if "mode" in inspect.signature(cls).parameters else {}
    try:
        of_masks = cls(**{**call.arguments, **nearest}) if masks and moves else None
        return OfMonai(cls(**call.arguments), of_masks)
    except Exception as error:
        call.refuse(error)


@dataclass(frozen=True)
class OfTorchvision:
    """A transform of `torchvision.transforms.v2`, drawn for each image on its own from torch's generator.

    A mask is moved as its image, by the nearest pixel.
    """

    transform: Any
    masks: bool

    def __call__(self, images: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        from torchvision.tv_tensors import Image, Mask

        if not self.masks:
            done = [self.transform(Image(image)).as_subclass(torch.Tensor) for image in images]
            return torch.stack(done), targets
        pairs = [self.transform(Image(i), Mask(m)) for i, m in zip(images, targets, strict=True)]
        moved, masks = zip(*pairs, strict=True)
        plain = torch.Tensor
        return torch.stack(moved).as_subclass(plain), torch.stack(masks).as_subclass(plain)


@dataclass(frozen=True)
class OfMonai:
    """A random transform of MONAI, drawn for each image on its own with a seed from torch's generator.

    Parameters
    ----------
    transform : monai.transforms.RandomizableTransform
        Of images.
    of_masks : monai.transforms.RandomizableTransform, optional
        The same of masks, by the nearest pixel; None where it moves nothing.
    """

    transform: Any
    of_masks: Any = None

    def __call__(self, images: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seeds = torch.randint(2**31, (len(images),)).tolist()
        pairs = list(zip(images, seeds, strict=True))
        moved = torch.stack([_drawn(self.transform, image, seed) for image, seed in pairs])
        if self.of_masks is None:
            return moved, targets
        masks = [_drawn(self.of_masks, m[None], s)[0] for m, s in zip(targets.float(), seeds, strict=True)]
        return moved, torch.stack(masks).round().to(targets.dtype)


def _drawn(transform: Any, image: torch.Tensor, seed: int) -> torch.Tensor:
    transform.set_random_state(seed)
    found: torch.Tensor = torch.as_tensor(transform(image)).as_subclass(torch.Tensor)
    return found.to(image.dtype)


@dataclass(frozen=True)
class InTurn:
    """Several augmentations, one after another."""

    parts: tuple[Augment, ...]

    def __call__(self, images: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for part in self.parts:
            images, targets = part(images, targets)
        return images, targets


@dataclass(frozen=True)
class CropFlip:
    """Pad with zeros, crop at random, and flip half of the images; drawn for each image on its own.

    He et al. 2016, section 4.2, augment CIFAR-10 so, with a padding of 4 pixels; here it is an eighth of the
    shorter side. The padding is added to the model's input: it is black, or the mean if images are
    standardised. `torchvision.transforms.v2` would draw one crop for a whole batch.

    Random numbers come from torch's CPU generator, whichever device the images are on.

    Parameters
    ----------
    padding : int
        Pixels added on each side.
    masks : bool
        Whether the targets are masks, (b, ...), which are cropped and flipped like their images; what is
        added to them is void.
    """

    padding: int
    masks: bool = False

    def __call__(self, images: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        count, device = len(images), images.device
        axes = images.dim() - 2
        starts = torch.randint(2 * self.padding + 1, (axes, count)).to(device)
        flipped = torch.randint(2, (count, *[1] * (axes + 1))).bool().to(device)

        def moved(pixels: torch.Tensor, fill: int) -> torch.Tensor:
            padded = torch.nn.functional.pad(pixels, (self.padding,) * 2 * axes, value=fill)
            for axis, size in enumerate(pixels.shape[2:], 2):
                padded = padded.unfold(axis, size, 1)
            crops = padded[(torch.arange(count, device=device), slice(None), *starts)]
            return torch.where(flipped, crops.flip(-1), crops)

        masks = moved(targets.unsqueeze(1), VOID).squeeze(1) if self.masks else targets
        return moved(images, 0), masks
