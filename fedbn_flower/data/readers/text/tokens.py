"""Read text by the tokens of a vocabulary that all clients share, from a file of the `tokenizers` library."""

from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ....core.errors import UserError, not_allowed
from ....core.free_memory import check_size
from ...dataset import Decoded, Request
from .plays import Units, decode_text

TOKENS = "tokens:"
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
