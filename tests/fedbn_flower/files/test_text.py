"""Text: speakers, windows, and runs that predict characters."""

import math

import numpy as np
import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.files.text import ALPHABET, CHARACTERS, cut_windows, encode_text, parse_speeches
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.records.events import Observer
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.inputs import local_task

PLAY = """
ANNA:
Who's there?

BERT:
Nay, answer me:
stand.

So he stood.


SECOND GHOST:

ANNA:
Long live the king!
"""


def test_the_speeches_of_a_play():
    """What has no name above it goes on with the speech before; who says nothing is not there."""
    assert parse_speeches(PLAY) == {
        "ANNA": "Who's there?\nLong live the king!\n",
        "BERT": "Nay, answer me:\nstand.\nSo he stood.\n",
    }


@pytest.mark.parametrize("text", ["", "\n", "Once upon a time:\nthere was", "It was.\n\nANNA:\nWho's there?"])
def test_a_text_is_a_play_if_it_begins_with_a_speech(text):
    assert bool(parse_speeches(text)) == text.startswith("Once")


def test_the_alphabet():
    """A line break, what ASCII prints, and one for anything else."""
    assert CHARACTERS == 1 + 1 + 95
    assert encode_text("\n ~").tolist() == [1, 2, 96]
    assert encode_text("\t\0\x7fé\N{PILE OF POO}").tolist() == [0] * 5
    assert "".join(ALPHABET[i - 1] for i in encode_text("Aye, sir.")) == "Aye, sir."


@pytest.mark.parametrize(("length", "last"), [(2, 1), (81, 80), (82, 1), (161, 80), (200, 39)])
def test_every_character_but_the_first_is_a_target_once(length, last):
    numbers = (np.arange(length) % 90).astype(np.uint8)
    x, y = cut_windows(numbers)
    assert x.shape == y.shape == (math.ceil((length - 1) / 80), 80)
    assert x.ravel()[: length - 1].tolist() == numbers[:-1].tolist()
    assert y[y >= 0].tolist() == numbers[1:].tolist()
    assert (y[-1] >= 0).sum() == last
    assert (y[:-1] >= 0).all()


@pytest.fixture
def play(tmp_path):
    """ANNA says 302 characters in two speeches, BERT 102, CLEO 101; each speech ends in a line break."""
    path = tmp_path / "play.txt"
    said = ("ANNA", "a" * 200), ("BERT", "b" * 101), ("CLEO", "c" * 100), ("ANNA", "A" * 100)
    path.write_text("".join(f"{name}:\n{words}\n\n" for name, words in said))
    return path


def test_a_client_a_speaker(configured, play):
    config = configured(dataset=f"text:{play}", model="char-lstm-small")
    dataset, shares = inputs_of(config).dataset, inputs_of(config).partitions
    assert config.partition == "natural:speaker"
    assert (dataset.spec.as_dataset(), dataset.has_classes) == ("shape:80:97:characters", False)
    # The first four fifths, 241 and 81 characters, give 3 windows of 80 and 1; the last, 61 and 21, one each.
    assert [len(rows) for rows in shares.train] == [3, 1]
    assert [len(rows) for rows in shares.test] == [1, 1]
    train, test = (split.columns["y"] for split in (dataset.train, dataset.test))
    anna, bert = (train[np.sort(rows)].ravel().tolist() for rows in shares.train)
    a, b, capital, end = encode_text("abA\n").tolist()
    assert anna == [a] * 199 + [end] + [capital] * 40
    assert bert == [b] * 80
    assert test[shares.test[0][0]].tolist() == [capital] * 59 + [end] + [-1] * 20
    assert test[shares.test[1][0]].tolist() == [b] * 19 + [end] + [-1] * 60
    assert list(map(str, dataset.notes)) == [
        "examples: the last 20 % of each speaker's text is held out for testing",
        "left out: 1 of 3 speakers, which say fewer than 102 characters (101 of 505 characters together)",
    ]


def test_iid_deals_the_same_windows(configured, play):
    natural = inputs_of(configured(dataset=f"text:{play}")).dataset
    config = configured(dataset=f"text:{play}", partition="iid")
    np.testing.assert_array_equal(inputs_of(config).dataset.train.columns["x"], natural.train.columns["x"])
    assert sorted(np.concatenate(inputs_of(config).partitions.train).tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("word", "said"), [("дом ", "75 %"), ("é" + "a" * 49, "2 %"), ("é" + "a" * 199, None)]
)
def test_characters_that_all_are_one_sign_are_counted(configured, tmp_path, word, said):
    """A model of a Russian text is nearly always right, and has learnt nothing."""
    (tmp_path / "text.txt").write_text(word * 100, encoding="utf-8")
    inputs = inputs_of(configured(dataset=f"text:{tmp_path / 'text.txt'}", partition="iid"))
    found = [note.text for note in inputs.dataset.notes if note.row == "target"]
    assert [text.partition(" of the characters are not in the alphabet")[0] for text in found] == (
        [said] if said else []
    )


def test_a_text_without_speakers(configured, tmp_path):
    path = tmp_path / "story.txt"
    path.write_text("\N{BYTE ORDER MARK}" + "so " * 100, encoding="utf-8")
    dataset = inputs_of(configured(dataset=f"text:{path}", partition="iid")).dataset
    assert (len(dataset.train), len(dataset.test)) == (3, 1)
    assert list(map(str, dataset.notes)) == ["examples: the last 20 % of the text is held out for testing"]
    with pytest.raises(
        UserError, match="partition: 'natural:speaker' is not allowed; expected 'iid': .*NAME:"
    ):
        inputs_of(configured(dataset=f"text:{path}")).dataset


BAD = {
    "missing": ({"dataset": "text:{}/missing.txt"}, "dataset: cannot read 'text:.*No such file"),
    "folder": ({"dataset": "text:{}"}, "dataset: cannot read 'text:.*directory"),
    "bytes": ({"dataset": "text:{}/bytes"}, "dataset: cannot read 'text:.*utf-8"),
    "short": ({"dataset": "text:{}/short", "partition": "iid"}, "expected a text of at least 102 characters"),
    "column": ({"partition": "natural:speakers"}, r"did you mean 'natural:speaker'\?"),
    "classes": (
        {"partition": "dirichlet:0.5"},
        "partition: 'dirichlet:0.5' is not allowed; expected 'iid' or",
    ),
    "clients": ({"num_clients": 3}, "num-clients: 3 is not allowed; expected at most 2"),
    "normalize": ({"normalize": True}, "normalize: True is not allowed; expected False, since"),
    "model": ({"model": "cnn"}, "model: 'cnn' is not allowed; expected images, not 80 characters of 97$"),
    "input": ({"model": "linear"}, "model: 'linear' does not fit inputs of 80 characters of 97"),
    "images": ({"model": "char-lstm", "dataset": "shape:1x8x8:10"}, "expected text, not 1x8x8 in 10 classes"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_reported_in_a_line(configured, play, tmp_path, name):
    (tmp_path / "bytes").write_bytes(b"\xff" * 200)
    (tmp_path / "short").write_text("x" * 101)
    values, output = BAD[name]
    given = {"dataset": f"text:{play}", "model": "char-lstm-small", "eval_data": "local"} | values
    config = configured(**given | {"dataset": given["dataset"].format(tmp_path)})
    with pytest.raises(UserError, match=output) as caught:
        Federation(config)
    assert "\n" not in str(caught.value)


WAYS = [
    {},
    {"client_momentum": 0.9, "clip_norm": 1.0, "weight_decay": 1e-4, "objective": "fedprox"},
    {"strategy": "scaffold", "objective": "scaffold"},
]


class Last(Observer):
    """Keeps the last round."""

    def on_round(self, result):
        self.result = result


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way) or "sgd")
def test_characters_are_learnt(configured, play, way):
    """Three letters and a line break: their frequencies are learnt at once."""
    given = {"dataset": f"text:{play}", "model": "char-lstm-small", "strategy": "fedavg", "batch_size": 1}
    config = configured(**given | {"client_lr": 1.0, "rounds": 2} | way)
    federation, last = Federation(config), Last()
    federation.run(InlineGrid(2, config.to_user_config()), [last])
    found = last.result.metrics
    assert last.result.failures == 0
    assert found["loss"] == pytest.approx(found["global-loss"])
    assert found["loss"] < 0.95 * math.log(97)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    assert found["train-perplexity"] == pytest.approx(math.exp(found["train-loss"]))
    assert [m["eval-examples"] for m in last.result.evaluate.metrics.values()] == [60, 20]


def test_a_site_with_a_text_of_its_own(configured, play, tmp_path):
    """Its text is of no speaker there: all of its windows are its own."""
    config = configured(dataset="shape:80:97:characters", model="char-lstm-small")
    node = {"data-path": f"text:{play}", "partition-id": 0, "cache-dir": str(tmp_path / "cache")}
    task = local_task(config, 0, node)
    assert len(task.train) == 4
    assert len(task.evaluation["test"]) == 2
