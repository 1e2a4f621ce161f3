"""Write a trained model as a file that other programs run, without this project or its code."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from fedbn_flower.clients.modules.lazy_torch import nn, torch

from ..config.registry import as_user_error
from ..core.errors import UserError, not_allowed, os_errors_as_user_errors
from ..core.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..models import InputSpec

NEEDED = ("onnx", "onnxscript")
"""The packages that write ONNX."""


def write_model(module: nn.Module, spec: InputSpec, path: str | PathLike[str], format: str) -> None:
    """Write a model in evaluation mode, for any number of examples; its file is overwritten.

    The input is called ``inputs``, float32 (n, ...), or int64 for characters; the output is ``outputs``.

    Parameters
    ----------
    module : nn.Module
        The model, on the CPU.
    spec : InputSpec
        The shape of an example.
    path : str or Path
        The file.
    format : str
        ``onnx`` or ``torchscript``.

    Raises
    ------
    UserError
        For another format, without the packages of ONNX, for a model that cannot be written, or a path.
    """
    if format not in FORMATS:
        raise not_allowed("format", format, f"one of {', '.join(FORMATS)}")
    if format == "onnx" and not all(map(find_spec, NEEDED)):
        install = "pip install 'fedbn-flower[onnx]'"
        raise not_allowed("format", format, f"torchscript, for onnx is not installed: {install}")
    with as_user_error("format", format), _quiet():
        content = FORMATS[format](module.eval(), spec.zeros(2))
    with os_errors_as_user_errors("path", f"write {str(path)!r}"):
        write_atomically(Path(path), content)


def _onnx(module: nn.Module, inputs: torch.Tensor) -> bytes:
    program = torch.onnx.export(
        module,
        (inputs,),
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("n")},),
        input_names=["inputs"],
        output_names=["outputs"],
        verbose=False,
    )
    if program is None:
        raise UserError("format: 'onnx' needs a PyTorch whose exporter returns a program")
    content: bytes = program.model_proto.SerializeToString()
    return content


def _torchscript(module: nn.Module, inputs: torch.Tensor) -> bytes:
    content = io.BytesIO()
    with torch.no_grad():
        torch.jit.save(torch.jit.trace(module, inputs), content)
    return content.getvalue()


FORMATS: dict[str, Callable[[nn.Module, torch.Tensor], bytes]] = {"onnx": _onnx, "torchscript": _torchscript}
"""The functions that write a model, by format."""


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of PyTorch's exporters, which are about their own parts."""
    logger = logging.getLogger("onnxscript")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
