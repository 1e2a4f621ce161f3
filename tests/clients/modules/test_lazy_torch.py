import inspect
import pickle
import subprocess
import sys
import typing
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from clients import LOSSES, OBJECTIVES, Loss, Problem
from clients.modules import lazy_torch

ROOT = Path(__file__).resolve().parents[3]


def test_they_have_the_attributes_of_the_modules_for_which_they_stand():
    for lazy, module in ((lazy_torch.torch, torch), (lazy_torch.nn, nn), (lazy_torch.functional, functional)):
        assert all(getattr(lazy, name) is value for name, value in vars(module).items() if name[0] != "_")
        assert pickle.loads(pickle.dumps(lazy)) is module


def test_the_annotations_of_what_users_extend_can_be_resolved():
    for cls in (Problem, Loss, *LOSSES.values(), *OBJECTIVES.values()):
        for _, method in inspect.getmembers(cls, inspect.isfunction):
            typing.get_type_hints(method)
    assert typing.get_type_hints(Problem.of_model)["model"] is nn.Module


def test_a_module_is_imported_when_an_attribute_is_asked_for():
    code = (
        "import sys; from clients.modules.lazy_torch import functional, nn, torch\n"
        "assert 'torch' not in sys.modules\n"
        "assert functional.relu is sys.modules['torch.nn.functional'].relu\n"
        "import torch as real; assert isinstance(torch.zeros(1), real.Tensor)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
