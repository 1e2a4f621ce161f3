"""Texts, of which the next character is learnt, or the next token."""

from __future__ import annotations

from collections.abc import Mapping

from fedbn_flower.clients import Prepare
from fedbn_flower.clients.modules.lazy_torch import torch

from ..core.input_spec import InputSpec
from .dataset import Kind, Rows

TEXT, TOKENS = "text:", "tokens:"
"""How the names of texts begin, by what is learnt of them."""
WINDOW = 80
ALPHABET = "\n" + "".join(map(chr, range(ord(" "), ord("~") + 1)))
"""The characters numbered 1, 2, ...; any other is 0. Fixed, so that sites agree and it reveals no data."""
CHARACTERS = len(ALPHABET) + 1


class Text(Kind):
    """Text: ``x`` (N, 80), numbers of characters or tokens; ``y`` (N, 80), the next ones, -1 after the end.

    They are uint8 and int8 for characters, int32 for tokens. Facts: ``tokens``, the size of a vocabulary.
    """

    def spec(self) -> InputSpec:
        return InputSpec((WINDOW,), self.facts.get("tokens", CHARACTERS), "characters")

    def prepare(self, rows: Rows, normalize: bool) -> Prepare:
        return to_int64


def to_int64(columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the numbers and the next ones, int64 (b, 80)."""
    return columns["x"].long(), columns["y"].long()
