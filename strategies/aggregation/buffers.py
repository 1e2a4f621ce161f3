"""Asynchronous protocols: how many answers make an update, and how stale answers are weighted.

Versions of the model are numbered by its updates: 0 is the first, and the n-th update makes version n. The
staleness of an answer is the number of updates since the version that its client trained.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import ClassVar, NamedTuple

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from numpy.typing import NDArray

SYNC = "sync"
FORM = "sync, fedbuff:K, fedasync, or fedasync with constant, polynomial:A or hinge:A:B after a colon"


class AsynchronousProtocol(ABC):
    """An update is made of ``size`` answers, each with a factor that depends on its staleness.

    Statistics and counters use ``x += sum_i w_i f_i (b_i - x) / sum_i w_i`` in every protocol, so that a
    variance stays between those of the server and the clients.
    """

    helps: ClassVar[tuple[str, ...]] = ()
    """What it is for: names of `core.methods.PURPOSES`, the main one first. Not inherited."""
    size: int
    """K, the number of answers that make an update."""
    from_current: ClassVar[bool]
    """Whether an answer's difference is to the server's model, rather than to the one that was trained."""

    @abstractmethod
    def factor(self, staleness: int) -> float:
        """Return f_i, the factor on an answer's difference."""


@dataclass(frozen=True)
class FedBuff(AsynchronousProtocol):
    """``D = sum_i w_i f_i (x_i - y_i) / sum_i w_i`` over K answers, ``f_i = 1/sqrt(1 + staleness)``.

    Nguyen et al. 2022, "Federated Learning with Buffered Asynchronous Aggregation" (arXiv 2106.06639),
    Algorithm 1, with its scaling of stale answers. y_i is the model that client i got. The paper has equal
    weights w_i.
    """

    purpose = "The server steps on every K answers and waits for nobody."
    helps = ("unequal-work",)
    paper = "nguyen2022fedbuff"
    from_current = False

    size: int

    def factor(self, staleness: int) -> float:
        return float((1 + staleness) ** -0.5)


@dataclass(frozen=True)
class FedAsync(AsynchronousProtocol):
    """``D = f (x_i - x)`` of a single answer, ``f = alpha s(staleness)``: FedAvg makes x (1 - f) x + f x_i.

    Xie et al. 2019, "Asynchronous Federated Optimization" (arXiv 1903.03934), Algorithm 1. The regulariser
    of its clients is the objective ``fedprox``. s is 1, `polynomial` or `hinge`.
    """

    purpose = "The server steps on each answer as it comes."
    helps = ("unequal-work",)
    paper = "xie2019fedasync"
    from_current = True

    alpha: float
    s: Callable[[int], float]
    size: int = 1

    def factor(self, staleness: int) -> float:
        return self.alpha * self.s(staleness)


def polynomial(a: float) -> Callable[[int], float]:
    """``s(t) = (1 + t)^-a``."""
    return lambda staleness: float((1 + staleness) ** -a)


def hinge(a: float, b: float) -> Callable[[int], float]:
    """``s(t) = 1`` up to b, then ``1 / (a (t - b) + 1)``."""
    return lambda staleness: 1 / (a * max(0.0, staleness - b) + 1)


FUNCTIONS: Mapping[str, Callable[..., Callable[[int], float]]] = {
    "constant": lambda: lambda staleness: 1.0,
    "polynomial": polynomial,
    "hinge": hinge,
}
"""The functions s of FedAsync by name."""
PROTOCOLS: Mapping[str, type[AsynchronousProtocol]] = {"fedbuff": FedBuff, "fedasync": FedAsync}


def protocol_of(text: str, alpha: float) -> AsynchronousProtocol | None:
    """Parse a text of the `FORM`; None for ``sync``.

    Raises
    ------
    ValueError
        When the text names no protocol.
    """
    name, *arguments = text.split(":")
    try:
        if text == SYNC:
            return None
        if name == "fedbuff" and (size := int(*arguments)) >= 1:
            return FedBuff(size)
        if name == "fedasync":
            kind, *numbers = arguments or ["constant"]
            values = [float(number) for number in numbers]
            if all(isfinite(value) and value >= 0 for value in values):
                return FedAsync(alpha, FUNCTIONS[kind](*values))
    except (KeyError, TypeError, ValueError):
        pass
    raise ValueError(f"expected {FORM}")


class BufferedAnswer(NamedTuple):
    """The partition of an answer, and the version of the model that it was trained from."""

    version: int
    partition: int


class Stale(NamedTuple):
    """The factor on an answer's differences, and the model to which its parameters' difference is taken.

    Without a model, the difference is to the server's.
    """

    factor: float
    model: Mapping[str, NDArray] | None


@dataclass(frozen=True)
class Buffer:
    """The answers that make the next update.

    Parameters
    ----------
    protocol : AsynchronousProtocol
        How answers are weighted.
    current : int
        The version of the server's model.
    answers : Sequence[BufferedAnswer]
        At most one usable answer per client, in the order of summation.
    models : Mapping[int, ArrayRecord]
        The models that they were trained from, by version.
    messages : Sequence[Message]
        The messages to their clients, in the same order, if already sent.
    """

    protocol: AsynchronousProtocol
    current: int
    answers: Sequence[BufferedAnswer]
    models: Mapping[int, ArrayRecord]
    messages: Sequence[Message] = ()

    @property
    def staleness(self) -> dict[int, int]:
        """The staleness of each answer, by partition."""
        return {answer.partition: self.current - answer.version for answer in self.answers}

    def addressed(self, nodes: Mapping[int, int], keys: tuple[str, str], config: ConfigRecord) -> "Buffer":
        """Return the buffer with its messages; clients without a node are left out.

        Parameters
        ----------
        nodes : Mapping[int, int]
            The nodes by partition.
        keys : tuple[str, str]
            The names of the records of the model and of the configuration.
        config : ConfigRecord
            The configuration that new messages have.
        """
        if self.messages:
            return self
        present = [answer for answer in self.answers if answer.partition in nodes]
        contents = {v: RecordDict({keys[0]: model, keys[1]: config}) for v, model in self.models.items()}
        messages = [Message(contents[v], nodes[partition], MessageType.TRAIN) for v, partition in present]
        return replace(self, answers=present, messages=messages)
