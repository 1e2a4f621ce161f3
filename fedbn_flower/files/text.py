"""Read text to predict its next character, or token; a client may be a speaker of a play."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients.problems.classification import NOTHING

from ..core.errors import UserError, not_allowed
from ..core.free_memory import check_size
from ..core.notes import Note
from ..data.dataset import Decoded, Request
from ..data.readers.made import check_group_column, join_clients
from ..data.text import ALPHABET, CHARACTERS, TOKENS, WINDOW

MIN_LENGTH = math.ceil((WINDOW + 1) * 5 / 4)  # the training part, 4/5, fills a window and its target

MOST_OTHERS = 0.01
"""The share of characters outside the alphabet, above which it is said."""

_NUMBERS = np.zeros(128, np.uint8)
_NUMBERS[[ord(character) for character in ALPHABET]] = np.arange(1, CHARACTERS)


@dataclass(frozen=True)
class Units:
    """What a text is made of: the plural of its name, and the function that numbers it."""

    name: str
    encode: Callable[[str], NDArray[np.integer]]
    facts: Mapping[str, object]


def decode_text(request: Request, path: Path, units: Units | None = None) -> Decoded:
    """Cut a text into windows of 80 characters; the target at every position is the next character.

    With other ``units`` these take the place of characters.

    See Reddi et al. 2021, 2003.00295, appendix C; LEAF predicts one character after 80. In a play (see
    `parse_speeches`), the speeches of each speaker are joined, in order, to one text. The last fifth of a
    text is for testing. No window crosses from one text, or one split, into another.

    Raises
    ------
    UserError
        When the file cannot be read, is too short, or has no speakers for a ``natural`` partition.
    """
    try:
        whole = check_size(path).read_text("utf-8-sig")
    except UserError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"dataset: cannot read {request.name!r} ({error})") from error
    check_group_column(request, "speaker")
    speakers = parse_speeches(whole)
    if request.group_column and not speakers:
        expected = f"'iid': {request.name!r} is not a play, as it does not begin with a line 'NAME:'"
        raise not_allowed("partition", "natural:speaker", expected)
    units = units or Units("characters", encode_text, {})
    all_texts = {name: units.encode(text) for name, text in (speakers or {"": whole}).items()}
    texts = {name: numbers for name, numbers in all_texts.items() if len(numbers) >= MIN_LENGTH}
    if not texts:
        raise not_allowed("dataset", request.name, f"a text of at least {MIN_LENGTH} {units.name}")
    clients = {}
    for name, numbers in texts.items():
        cut = len(numbers) * 4 // 5
        clients[name] = cut_windows(numbers[:cut]), cut_windows(numbers[cut:])
    return join_clients("text", clients, request, units.facts, _notes(all_texts, texts, units.name))


def parse_speeches(text: str) -> dict[str, str]:
    """Return the text of each speaker of a play, by name; empty if the text does not begin with a speech.

    A speech is the lines below a line ``NAME:``, up to an empty line. A paragraph without a name continues
    the speech before it.
    """
    found: dict[str, list[str]] = {}
    name = ""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        head, _, below = paragraph.partition("\n")
        begins = head.endswith(":") and head != ":"
        name, speech = (head[:-1], below) if begins else (name, paragraph)
        if not name:
            return {}
        if speech:
            found.setdefault(name, []).append(f"{speech}\n")
    return {name: "".join(parts) for name, parts in found.items()}


def encode_text(text: str) -> NDArray[np.uint8]:
    """Return the number of each character; 0 for characters that are not in `ALPHABET`."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    return _NUMBERS[np.minimum(codes, len(_NUMBERS) - 1)]


def cut_windows(numbers: NDArray[np.integer]) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """Return inputs and targets (n, 80) of a text; every character but the first is a target once."""
    count = len(numbers) - 1
    inputs = np.zeros((math.ceil(count / WINDOW), WINDOW), numbers.dtype)
    targets = np.full(inputs.shape, NOTHING, np.int8 if numbers.dtype == np.uint8 else numbers.dtype)
    inputs.flat[:count], targets.flat[:count] = numbers[:-1], numbers[1:]
    return inputs, targets


def _notes(
    all_texts: Mapping[str, NDArray[np.integer]], texts: Mapping[str, NDArray[np.integer]], units: str
) -> Iterator[Note]:
    unit = "each speaker's text" if "" not in all_texts else "the text"
    yield Note("examples", f"the last 20 % of {unit} is held out for testing")
    total = sum(map(len, all_texts.values()))
    others = sum(int(np.count_nonzero(numbers == 0)) for numbers in all_texts.values())
    if units == "characters" and others > MOST_OTHERS * total:
        share = f"{100 * others / total:.0f} % of the characters are not in the alphabet, printable ASCII"
        yield Note("target", f"{share}: all of them are one sign, and a model is right that predicts it")
    if excluded := len(all_texts) - len(texts):
        used = sum(map(len, texts.values()))
        few = f"which say fewer than {MIN_LENGTH} {units} ({total - used} of {total} {units} together)"
        yield Note("left out", f"{excluded} of {len(all_texts)} speakers, {few}")


SUFFIX = ".json"
FORM = "tokens:TOKENIZER.json:FILE, a file of the tokenizers library and a text"


def paths_of_tokens(name: str) -> tuple[str, str]:
    """Return the paths of the tokenizer and of the text.

    Raises
    ------
    UserError
        When the name has another form.
    """
    tokenizer, separator, text = name.removeprefix(TOKENS).partition(f"{SUFFIX}:")
    if not (separator and tokenizer and text):
        raise not_allowed("dataset", name, FORM)
    return f"{tokenizer}{SUFFIX}", text


def decode_tokens(request: Request, tokenizer: Path, path: Path) -> Decoded:
    """Decode a text as `decode_text` does, by tokens in place of characters; a speaker's text at once.

    Raises
    ------
    UserError
        When the tokenizer cannot be read, or its library is not installed, or for what `decode_text` refuses.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        install = "pip install 'fedbn-flower[text]'"
        raise not_allowed("dataset", request.name, f"the package tokenizers: {install}") from error
    try:
        read = Tokenizer.from_file(str(check_size(tokenizer)))
    except UserError:
        raise
    except Exception as error:  # the library raises Exception itself
        reason = " ".join(str(error).split())
        raise UserError(f"dataset: {str(tokenizer)!r} cannot be read as a tokenizer ({reason})") from error

    def encode(text: str) -> NDArray[np.int32]:
        return np.array(read.encode(text, add_special_tokens=False).ids, np.int32)

    vocabulary = sha256(read.to_str().encode()).hexdigest()
    facts = {"tokens": read.get_vocab_size(), "vocabulary": vocabulary}
    return decode_text(request, path, Units("tokens", encode, facts))
