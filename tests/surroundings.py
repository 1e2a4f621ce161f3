"""What a caller may have set for all of PyTorch or NumPy."""

from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def default_dtype(dtype):
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


SET = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "float64": lambda: default_dtype(torch.float64),
    "bfloat16": lambda: default_dtype(torch.bfloat16),
    "device": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "numpy": lambda: np.errstate(all="raise"),
    "anomaly mode": lambda: torch.autograd.set_detect_anomaly(True),
}
"""Each as a context, by name."""
