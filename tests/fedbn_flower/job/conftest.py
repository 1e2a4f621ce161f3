"""What a run knows of itself before its first round."""

import pytest

from fedbn_flower.server.federation import Federation


class Begun(BaseException):
    """A run is about to begin its first round."""


@pytest.fixture
def begun(run, monkeypatch):
    """The federation of a run, before its first round."""

    def begins(self, *_):
        raise Begun(self)

    def federation(**keys):
        with monkeypatch.context() as patch:
            patch.setattr(Federation, "run", begins)
            with pytest.raises(Begun) as caught:
                run(**{"client": "shared", "model": "linear", "partition": "iid"} | keys)
        return caught.value.args[0]

    return federation
