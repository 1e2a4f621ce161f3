"""Text, to be predicted character by character; a client may be a speaker of a play."""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedbn_flower.clients import Prepare
from fedbn_flower.clients.problems.characters import NOTHING

from ...core.errors import UserError, not_allowed
from ...core.input_spec import InputSpec
from ..dataset import Decoded, Kind, Request, Rows
from .per_client import check_column, decoded_by_client

TEXT = "text:"
WINDOW = 80
ALPHABET = "\n" + "".join(map(chr, range(ord(" "), ord("~") + 1)))
"""The characters numbered 1, 2, ...; any other is 0. It is fixed: sites agree on it, and it tells nothing."""
CHARACTERS = len(ALPHABET) + 1
FEWEST = math.ceil((WINDOW + 1) * 5 / 4)  # four fifths of which are a window and the character after it

_NUMBERS = np.zeros(128, np.uint8)
_NUMBERS[[ord(character) for character in ALPHABET]] = np.arange(1, CHARACTERS)


class Text(Kind):
    """``x`` uint8 (N, 80), character numbers; ``y`` int8 (N, 80), those that follow, -1 after the end."""

    def spec(self) -> InputSpec:
        return InputSpec((WINDOW,), CHARACTERS, "characters")

    def prepare(self, rows: Rows, normalize: bool) -> Prepare:
        return as_characters


def as_characters(columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Character numbers and those that follow, int64 (b, 80)."""
    return columns["x"].long(), columns["y"].long()


def text_decoded(request: Request, path: Path) -> Decoded:
    """A text cut into windows of 80 characters, the target at every place the next one (Reddi et al. 2021,
    2003.00295, appendix C; LEAF predicts one character after 80).

    Where the file is a play (`speeches`), each speaker's speeches are one text, in their order. The last
    fifth of a text is for testing. No window crosses from one text, or one split, into another.

    Raises
    ------
    UserError
        When the file cannot be read, is too short, or lacks the speakers that are asked for.
    """
    try:
        whole = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"dataset: cannot read {request.name!r} ({error})") from error
    check_column(request, "speaker")
    speakers = speeches(whole)
    if request.group_column and not speakers:
        told = f"'iid': {request.name!r} does not begin with a line 'NAME:', as each speech of a play does"
        raise not_allowed("partition", "natural:speaker", told)
    everyone = speakers or {"": whole}
    texts = {name: text for name, text in everyone.items() if len(text) >= FEWEST}
    if not texts:
        raise not_allowed("dataset", request.name, f"a text of at least {FEWEST} characters")
    clients = {}
    for name, text in texts.items():
        numbers = as_numbers(text)
        cut = len(numbers) * 4 // 5
        clients[name] = windows(numbers[:cut]), windows(numbers[cut:])
    return decoded_by_client("text", clients, request, notes=_notes(everyone, texts))


def speeches(text: str) -> dict[str, str]:
    """What each speaker of a play says, by name; nothing for a text that does not begin with a speech.

    A speech is the lines under a line ``NAME:``, up to an empty line; lines without a name above them go on
    with the speech before.
    """
    found: dict[str, list[str]] = {}
    name = ""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        head, _, below = paragraph.partition("\n")
        begins = head.endswith(":") and head != ":"
        name, said = (head[:-1], below) if begins else (name, paragraph)
        if not name:
            return {}
        if said:
            found.setdefault(name, []).append(f"{said}\n")
    return {name: "".join(said) for name, said in found.items()}


def as_numbers(text: str) -> NDArray[np.uint8]:
    """Each character's number, 0 for what is not in `ALPHABET`."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    return _NUMBERS[np.minimum(codes, len(_NUMBERS) - 1)]


def windows(numbers: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.int8]]:
    """Inputs and targets (n, 80) of a text: every character but the first is a target once."""
    count = len(numbers) - 1
    inputs = np.zeros((math.ceil(count / WINDOW), WINDOW), np.uint8)
    targets = np.full(inputs.shape, NOTHING, np.int8)
    inputs.flat[:count], targets.flat[:count] = numbers[:-1], numbers[1:]
    return inputs, targets


def _notes(everyone: Mapping[str, str], texts: Mapping[str, str]) -> Iterator[str]:
    whose = "each speaker's text" if "" not in everyone else "the text"
    yield f"text: the last fifth of {whose} is held out for testing"
    if lost := len(everyone) - len(texts):
        there, used = (sum(map(len, said.values())) for said in (everyone, texts))
        yield (
            f"text: {lost} of {len(everyone)} speakers say fewer than {FEWEST} characters and are left out, "
            f"{there - used} of {there} characters"
        )
