import inspect
import pickle
import sys
import typing

import torch
from torch import nn
from torch.nn import functional

from clients import LOSSES, OBJECTIVES, Loss, Problem
from clients.modules import lazy_torch


def test_they_have_the_attributes_of_the_modules_for_which_they_stand():
    for used, module in ((lazy_torch.torch, torch), (lazy_torch.nn, nn), (lazy_torch.functional, functional)):
        lazy = type(used)(used.__name__)  # a new one: another test may have patched what that one took
        assert all(getattr(lazy, name) is value for name, value in vars(module).items() if name[0] != "_")
        assert pickle.loads(pickle.dumps(lazy)) is module


def test_the_annotations_of_what_users_extend_can_be_resolved():
    for cls in (Problem, Loss, *LOSSES.values(), *OBJECTIVES.values()):
        for _, method in inspect.getmembers(cls, inspect.isfunction):
            typing.get_type_hints(method)
    assert typing.get_type_hints(Problem.of_model)["model"] is nn.Module


def test_a_module_is_imported_when_an_attribute_is_asked_for(tmp_path, monkeypatch):
    """That this is so of torch, and that nothing else imports it, is `test_cli`'s."""
    (tmp_path / "taking_seconds.py").write_text("relu = object()\n")
    monkeypatch.syspath_prepend(tmp_path)
    lazy = lazy_torch._LazyModule("taking_seconds")
    assert "taking_seconds" not in sys.modules
    assert lazy.relu is sys.modules["taking_seconds"].relu
    del sys.modules["taking_seconds"]
