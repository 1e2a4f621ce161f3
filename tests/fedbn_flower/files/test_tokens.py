"""Text by the tokens of a tokenizer's file."""

import json
import sys

import numpy as np
import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.job.inputs import inputs_of

WORDS = [f"w{number}" for number in range(300)]


@pytest.fixture
def tokenizer(tmp_path):
    """Numbers a word ``w7`` as 7, and any other as 300."""
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({w: n for n, w in enumerate([*WORDS, "?"])}, unk_token="?")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "words.json"))
    return tmp_path / "words.json"


@pytest.fixture
def play(tmp_path):
    """ANNA says w0 ... w299 and w0, BERT 101 words, one too few; few characters would do."""
    said = {"ANNA": [*WORDS, "w0"], "BERT": WORDS[:101]}
    text = "\n".join(f"{name}:\n{' '.join(words)}\n" for name, words in said.items())
    (tmp_path / "play.txt").write_text(text)
    return tmp_path / "play.txt"


def test_every_token_but_the_first_is_a_target_once(configured, tokenizer, play):
    """Four fifths of 301 are 240 words: 239 targets in 3 windows; of the other 61, 60 in one."""
    dataset = inputs_of(configured(dataset=f"tokens:{tokenizer}:{play}", num_clients=1)).dataset
    assert dataset.spec.as_dataset() == "shape:80:301:characters"
    x, y = (dataset.train.columns[name] for name in "xy")
    assert x.shape == y.shape == (3, 80)
    assert y[y >= 0].tolist() == list(range(1, 240))
    assert x.ravel()[:239].tolist() == list(range(239))
    held_out = dataset.test.columns["y"]
    assert held_out[held_out >= 0].tolist() == [*range(241, 300), 0]
    assert str(dataset.notes[1]) == (
        "left out: 1 of 2 speakers, which say fewer than 102 tokens (101 of 402 tokens together)"
    )


def test_a_model_over_the_vocabulary_learns_them(run, tokenizer, play):
    """A speaker repeats 50 words in one order: who knows the words alone has a perplexity of 50."""
    keys = {"client_optimizer": "adam", "client_lr": 0.02, "batch_size": 2, "local_epochs": 20}
    play.write_text("ANNA:\n" + " ".join(WORDS[:50] * 20))
    name = f"tokens:{tokenizer}:{play}"
    names = {"strategy": "fedavg", "client": "shared", "model": "char-lstm-small"}
    result = run(dataset=name, num_clients=1, **names, **keys)
    assert result.model().output.out_features == 301
    assert result.history["perplexity"].iloc[-1] < 30
    assert np.isfinite(result.history["loss"]).all()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tokens:play.txt", "dataset: 'tokens:play.txt' is not allowed; expected tokens:TOKENIZER.json:FILE"),
        ("tokens:{tokenizer}:nowhere.txt", "dataset: cannot read 'tokens:.*nowhere.txt' .*No such file"),
        ("tokens:nowhere.json:{play}", "dataset: cannot read 'tokens:nowhere.json:.*No such file"),
        ("tokens:{other}:{play}", "dataset: '.*other.json' cannot be read as a tokenizer"),
    ],
)
def test_mistakes(configured, tokenizer, play, name, message):
    other = play.with_name("other.json")
    other.write_text(json.dumps({"version": "1.0"}))
    with pytest.raises(UserError, match=f"^{message}"):
        inputs_of(configured(dataset=name.format(tokenizer=tokenizer, play=play, other=other))).dataset


def test_the_library_is_asked_for_by_name(configured, tmp_path, play, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    (tmp_path / "words.json").write_text("{}")
    with pytest.raises(UserError, match=r"the package tokenizers: pip install 'fedbn-flower\[text\]'"):
        inputs_of(configured(dataset=f"tokens:{tmp_path / 'words.json'}:{play}")).dataset
