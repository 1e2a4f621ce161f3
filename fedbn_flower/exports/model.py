"""Write a trained model as a file that other programs run, without this project or its code."""

from __future__ import annotations

import io
import logging
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from fedbn_flower.clients.modules.lazy_torch import nn, torch

from ..core.errors import not_allowed, os_errors_as_user_errors
from ..core.files import write_atomically
from ..models.integers import fitted

if TYPE_CHECKING:
    from ..models import InputSpec

NEEDED = ("onnx", "onnxscript")
"""The packages that write ONNX."""
LONGEST = 200
"""Characters of a reason."""


def write_model(module: nn.Module, spec: InputSpec, path: str | PathLike[str], format: str) -> None:
    """Write a model in evaluation mode, for any number of examples; an earlier export's file is replaced.

    The input is called ``inputs``, float32 (n, ...), or int64 for characters and whole numbers; the output
    is ``outputs``.

    Parameters
    ----------
    module : nn.Module
        The model, on the CPU.
    spec : InputSpec
        The shape of an example.
    path : str or Path
        The file: a new one, or one to replace whose name ends as `ENDINGS` says.
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
    path = Path(path)
    if path.exists() and not (path.is_file() and path.suffix in ENDINGS[format]):
        expected = f"a new file, or one to replace whose name ends in {' or '.join(ENDINGS[format])}"
        raise not_allowed("path", str(path), expected)
    try:
        with _quiet():
            content = FORMATS[format](module.eval(), fitted(module, spec).zeros(2))
    except Exception as error:  # the exporters raise anything
        cause = error.__cause__ or error
        why = textwrap.shorten(f"{type(cause).__name__}: {str(cause).partition('.')[0]}", LONGEST)
        raise not_allowed("format", format, f"one in which the model can be written ({why})") from error
    with os_errors_as_user_errors("path", f"write {str(path)!r}"):
        write_atomically(path, content)


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
    assert program
    content: bytes = program.model_proto.SerializeToString()
    return content


def _torchscript(module: nn.Module, inputs: torch.Tensor) -> bytes:
    content = io.BytesIO()
    with torch.no_grad():
        traced = torch.jit.trace(module, inputs)  # type: ignore[no-untyped-call]
        torch.jit.save(traced, content)
    return content.getvalue()


FORMATS: dict[str, Callable[[nn.Module, torch.Tensor], bytes]] = {"onnx": _onnx, "torchscript": _torchscript}
"""The functions that write a model, by format."""
ENDINGS = {"onnx": (".onnx",), "torchscript": (".pt", ".pth", ".ts", ".torchscript")}
"""Of the files that an export replaces: another one may be somebody's, and was hardly meant."""


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings and log lines of PyTorch's exporters, which are about their own parts."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
