"""Arrays and Datasets as people pass them: each is read as meant, or refused in one line."""

from collections import defaultdict

import pytest

from fedbn_flower import simulate
from fedbn_flower.core.errors import UserError
from fedbn_flower.server.federation import Federation

from .arrays import CASES, IS, OF_ONE_MODEL


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize(("keys", "expected"), [pytest.param(*case, id=name) for name, *case in CASES])
def test_what_is_said_before_anything_is_learnt(keys, expected, cache_dir, monkeypatch):
    monkeypatch.setattr("fedbn_flower.api.simulate._run", lambda config, *_: Federation(config).inputs)
    monkeypatch.setattr("fedbn_flower.api.simulate.Result", lambda inputs, *_, **__: inputs)
    given = {"partition": "iid", "num_clients": 2} if isinstance(keys().get("data"), tuple) else {}
    small = {"client": "shared", "model": "linear", "backend": "inline", "progress": False}
    if isinstance(expected, str):
        with pytest.raises(UserError) as caught:
            simulate(**small | given | keys(), cache_dir=cache_dir)
        assert str(caught.value) == expected
        return
    inputs = simulate(**small | given | keys(), cache_dir=cache_dir)
    said = defaultdict(list)
    for note in inputs.notes:
        if note.line != OF_ONE_MODEL:
            said[note.row].append(note.line)
    assert {IS: [str(inputs.dataset.spec)], **said} == expected
