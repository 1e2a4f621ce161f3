"""Examples that stay on a GPU: which do, and that batches of them are the same bits."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from clients import Examples, examples

ROWS = np.array([5, 3, 8, 0, 9, 2, 7])


def images(dtype=np.uint8):
    rng = np.random.default_rng(0)
    return {"x": rng.integers(0, 200, (10, 1, 2, 3)).astype(dtype), "y": np.arange(10)}


def prepare(columns):
    return columns["x"].float() / 255, columns["y"]


@pytest.fixture
def sent(monkeypatch):
    """Rows that are sent to the device, which stands for a GPU with room, call by call."""
    calls = []
    gathered = Examples.gathered

    def counted(self, rows):
        calls.append(len(rows))
        return gathered(self, rows)

    monkeypatch.setattr(Examples, "gathered", counted)
    monkeypatch.setattr(examples, "has_room", lambda device, size: True)
    return calls


def two_epochs(some):
    rng = np.random.default_rng(1)
    return [batch for _ in range(2) for batch in some.load(some.batches(3, rng), training=True)]


def assert_same_batches(found, expected):
    for batch, other in zip(found, expected, strict=True):
        for tensor, same in zip(batch, other, strict=True):
            assert tensor.dtype == same.dtype
            assert torch.equal(tensor, same)


def test_each_example_is_sent_once(sent, monkeypatch):
    """Seven examples of 7 values: three at a time. Without a place they are sent in every epoch."""
    some = Examples(images(), ROWS, prepare)
    monkeypatch.setattr(examples, "UPLOADED", 27)
    found = two_epochs(some)
    assert sent == [0, 3, 3, 1]
    monkeypatch.setattr(examples, "has_room", lambda device, size: False)
    expected = two_epochs(replace(some))
    assert sent[4:] == [7, 7]
    assert_same_batches(found, expected)


def test_half_of_a_gpu_stays_free(monkeypatch):
    """Seven rows of 6 + 8 bytes are 98: of 200 bytes, 198 have to be free."""
    some = Examples(images(), ROWS, prepare, device="cuda")
    monkeypatch.setattr(Examples, "gathered", lambda self, rows: {"y": torch.zeros(len(rows))})
    for free, is_held in ((198, True), (197, False)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda free=free: (free, 200))
        assert (replace(some).held is not None) == is_held


def test_nothing_stays_on_a_processor(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: pytest.fail("it was asked"))
    assert Examples(images(), ROWS, prepare).held is None


def test_images_of_16_bits_are_sent_batch_by_batch(sent):
    assert Examples(images(np.uint16), ROWS, prepare).held is None


def test_where_the_room_is_gone_batches_are_sent(sent, monkeypatch):
    some = Examples(images(), ROWS, prepare)
    counted = Examples.gathered

    def full(self, rows):
        if len(rows) == len(ROWS) and not sent[1:]:
            sent.append(0)
            raise torch.OutOfMemoryError("CUDA out of memory")
        return counted(self, rows)

    monkeypatch.setattr(Examples, "gathered", full)
    found = two_epochs(some)
    assert some.held is None
    monkeypatch.setattr(examples, "has_room", lambda device, size: False)
    assert_same_batches(found, two_epochs(replace(some)))


def test_an_evaluation_may_send_what_trains_later(sent):
    some = Examples(images(), ROWS, prepare)
    with torch.inference_mode():
        list(some.load(some.batches(3)))
    weight = torch.ones(1, requires_grad=True)
    inputs, _ = next(some.load(some.batches(3)))
    (inputs * weight).sum().backward()
    assert weight.grad.item() == pytest.approx(inputs.sum().item())
