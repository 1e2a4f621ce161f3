"""Whole runs with local privacy: what leaves a client, what is accounted and where, refused and repeated."""

import numpy as np
import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.results.run_folder import RunFolder
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.runtime.recorded_run import recorded_run
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation
from strategies.messages.npy import decoded

from .runs import SMALL, Stops, charges, of_local, resume, simulated


class Listening(InlineGrid):
    """Keeps what travels to and from the clients in each round."""

    def work(self, messages, timeout):
        heard = vars(self).setdefault("heard", [])
        for message, reply in zip(messages, super().work(messages, timeout), strict=True):
            if message.metadata.message_type == "train":
                heard.append(tuple(flat(one) for one in (message, reply)))
            yield reply


def flat(message):
    arrays = message.content["arrays"]
    return np.concatenate(
        [decoded(a, np.empty(a.shape, a.dtype)).astype(float).ravel() for a in arrays.values()]
    )


def sent(config, folder):
    """Run a round; return what was received and what left each client, and the model after it."""
    federation = Federation(config)
    federation.strategy._takes_sums_ = False
    grid = Listening(config.num_clients, config.to_user_config())
    folder.mkdir()
    recorded_run(federation, grid, RunFolder(folder, federation, grid.client_memory), [], None)
    return np.array(grid.heard).swapaxes(0, 1)


@pytest.mark.parametrize("clip", [0.01, 5.0])
def test_what_leaves_a_client_is_its_clipped_update_and_noise(configured, tmp_path, clip):
    """The update is that of the same run without privacy, shorter than 5 and longer than 0.01."""
    noise = 0.01 / clip
    private = of_local(configured, dp_noise=noise, dp_clip=str(clip), rounds=1)
    plain = configured(**SMALL, num_clients=4, rounds=1)
    before, noisy = sent(private, tmp_path / "private")
    _, after = sent(plain, tmp_path / "plain")
    lengths = np.linalg.norm(after - before, axis=1)
    assert ((lengths > 0.01) & (lengths < 5)).all()
    added = noisy - before - (after - before) * np.minimum(1, clip / lengths)[:, np.newaxis]
    assert added.std(axis=1) == pytest.approx(np.full(4, 0.01), rel=0.1)
    assert abs(np.corrcoef(added) - np.eye(4)).max() < 0.2


def killed(*_):
    raise KeyboardInterrupt


def test_a_resumed_run_whose_budget_is_spent_is_refused(configured, tmp_path, monkeypatch):
    """Round 3 was charged twice, and none of it is in the checkpoint of round 2."""
    config = of_local(configured, dp_seed=-1, dp_noise=0, dp_epsilon=8, rounds=4, checkpoint_every=2)
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        simulate(Federation(config), run, None, [Stops(3)])
    monkeypatch.setattr("fedbn_flower.server.federation.Exchange._carried", killed)
    with pytest.raises(KeyboardInterrupt):
        simulated(resume(config, run), run)
    assert [charge["round"] for charge in charges(run)] == [1, 2, 3, 3]
    wanted = r"^rounds: 4 is not allowed; expected 2: the privacy budget is spent at round 3$"
    with pytest.raises(UserError, match=wanted):
        simulated(resume(config, run), run)
