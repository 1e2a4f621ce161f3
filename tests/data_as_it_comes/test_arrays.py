"""Arrays and Datasets as people pass them: each is learnt as meant, or refused in one line."""

from collections import defaultdict

import pytest

from fedbn_flower import simulate
from fedbn_flower.config.making import run_config
from fedbn_flower.core.errors import UserError
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.results.manifest import read_configuration

from .arrays import CASES, IS, OF_ONE_MODEL


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize(("keys", "expected"), [pytest.param(*case, id=name) for name, *case in CASES])
def test_what_is_said_before_anything_is_learnt(
    keys, expected, cache_dir, tmp_path, monkeypatch, pictures_not_drawn
):
    """Of a run of one round."""
    monkeypatch.chdir(tmp_path)
    given = {"partition": "iid", "num_clients": 2} if isinstance(keys().get("data"), tuple) else {}
    small = {"rounds": 1, "client": "shared", "model": "linear", "backend": "inline", "progress": False}
    if isinstance(expected, str):
        with pytest.raises(UserError) as caught:
            simulate(**small | given | keys(), cache_dir=cache_dir)
        assert str(caught.value) == expected
        return
    result = simulate(**small | given | keys(), cache_dir=cache_dir)
    guessed = {"eval-data": "auto", "cache-dir": str(cache_dir)}
    inputs = inputs_of(run_config(read_configuration(result.folder) | guessed))
    found = defaultdict(list)
    for note in inputs.notes:
        if note.line != OF_ONE_MODEL:
            found[note.row].append(note.line)
    assert {IS: [str(inputs.dataset.spec)], **found} == expected
