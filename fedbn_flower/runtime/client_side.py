"""Who answers the messages of a grid: this project's clients, or any ClientApp."""

from collections.abc import Sequence
from typing import Protocol

from flwr.app import Context, Message


class ClientSide(Protocol):
    """Answers messages in whatever process a grid has for it; Ray's workers get a pickled copy."""

    prints: bool
    """Whether what is printed while it answers is for the user. Workers then send it with the replies."""

    def remembers(self, message: Message) -> bool:
        """Return whether a message is answered with the memory of its client."""

    def answer(self, messages: Sequence[Message], contexts: Sequence[Context], summed: bool) -> list[Message]:
        """Return the replies to messages of one content; a client that fails is answered for by an error.

        What a client keeps is in the ``state`` of its context afterwards. With ``summed`` the replies carry
        one sum of the clients' models.
        """
