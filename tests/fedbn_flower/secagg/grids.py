"""Grids on which clients are lost in a step of secure aggregation, and one that keeps all that it carries."""

import base64

from flwr.app import ConfigRecord

from fedbn_flower.records.events import Observer
from fedbn_flower.runtime.grid import InlineGrid, partition_of
from fedbn_flower.secagg.words import ADVERTISE, AGREE, SECAGG, SHARE, STEP, UNMASK
from fedbn_flower.server.federation import Federation

STEPS = (ADVERTISE, SHARE, "train", UNMASK)


def step_of(message, before):
    """Of which step of a training a message is; None of those that evaluate.

    ``before`` is the type of the last message that was no step of its own.
    """
    asked = message.content.get(SECAGG)
    if isinstance(asked, ConfigRecord):
        return asked[STEP] if (before == "train") == (asked[STEP] in (AGREE, UNMASK)) else None
    return message.metadata.message_type


def spellings(secret):
    """Ways in which a file may have a secret, or a share: without the four bytes that say whose it is."""
    for whole in (secret, secret[4:] if len(secret) == 36 else secret):
        yield whole
        yield whole.hex().encode()
        yield base64.b64encode(whole)
        yield repr(whole).encode()


class Lossy(InlineGrid):
    """Loses the answers of clients in steps: ``lost`` has partitions by step.

    ``changed`` gets each message before it is delivered, and each reply with its message: what it returns, if
    anything, goes on instead. All messages and replies are in ``carried``.
    """

    def __init__(self, config, lost=None, changed=None):
        super().__init__(config.num_clients, config.to_user_config())
        self.lost = lost or {}
        self.changed = changed or (lambda step, message, reply: None)
        self.carried = []
        self.phase = "evaluate"

    def work(self, messages, timeout):
        for message in messages:
            step, partition = step_of(message, self.phase), partition_of(message)
            self.phase = message.metadata.message_type if SECAGG not in message.content else self.phase
            message = self.changed(step, message, None) or message  # noqa: PLW2901
            for reply in super().work([message], timeout):
                found = self.changed(step, message, reply) or reply
                self.carried.append((step, partition, message, found))
                if partition not in self.lost.get(step, ()):
                    yield found


class Rounds(Observer):
    def __init__(self):
        self.results = []

    def on_round(self, result):
        self.results.append(result)


def run_on(config, grid=None):
    """The rounds of a run on a grid, and the bytes of its last model."""
    rounds = Rounds()
    arrays = Federation(config).run(grid or Lossy(config), [rounds])
    return rounds.results, {name: array.data for name, array in arrays.items()}
