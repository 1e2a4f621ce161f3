"""The Ray actor that runs clients."""

import os
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from flwr.app import ArrayRecord, Message, RecordDict, UserConfig

from fedbn_flower.clients.problems.evaluation import Sums

from ...config.making import run_config
from ...core.errors import UserError
from ...core.private import replace_data
from ...core.session_objects import replace_session_objects
from ...job.inputs import inputs_of
from ...server.evaluation import evaluated_share, load_model
from ..collected_output import Collected, collected_output
from ..grid import ClientSide, identify_process, node_context, partition_of
from ..signals import forked_children_end_by_sigterm

LARGE = 2**12  # bytes


class Worker:
    """Runs the ClientApp for any client: its memory comes with the call and goes back with the replies.

    Datasets, partitions and modules stay warm in the process, whichever clients it serves.
    """

    def __init__(
        self,
        run_config: UserConfig,
        num_clients: int,
        objects: Mapping[str, object],
        clients: ClientSide,
    ) -> None:
        identify_process()
        forked_children_end_by_sigterm()  # Ray has a handler
        self.start_run(run_config, num_clients, objects, clients)
        self._content: tuple[Any, RecordDict] = (None, RecordDict())
        self._printed = Collected()

    def process_id(self) -> int:
        """This worker's process."""
        return os.getpid()

    def data(self) -> tuple[str, str, str]:
        """The address of this machine, and the digest of the run's data on it, or why there is none."""
        here: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        try:
            return here, inputs_of(run_config(self._run_config)).dataset.digest, ""
        except UserError as error:
            return here, "", str(error)

    def start_run(
        self,
        run_config: UserConfig,
        num_clients: int,
        objects: Mapping[str, object],
        clients: ClientSide,
    ) -> None:
        """Serve another run, whose configuration may name objects of the driver's session."""
        replace_session_objects(objects)
        self._run_config = run_config
        self._num_clients = num_clients
        self._clients = clients

    def handle(
        self,
        envelopes: Sequence[Message],
        stored: Sequence[Any],
        summed: bool,
        *memories: RecordDict | None,
    ) -> tuple[Any, ...]:
        """Answer messages of one content; each client's memory, or None for an empty one.

        Parameters
        ----------
        envelopes : Sequence[Message]
            The messages without their content.
        stored : Sequence[ObjectRef]
            The content in the object store, fetched once a worker and round.
        summed : bool
            Whether the clients' models come back as one sum.
        *memories : RecordDict, optional
            The memories of the clients, in the messages' order; nothing for clients that have none.

        Returns
        -------
        tuple
            The replies; by message, whether the client's memory changed; what was printed; then each memory
            that changed.
        """
        if self._content[0] != stored[0]:
            self._content = stored[0], ray.get(stored[0])
        contexts = []
        for message, memory in zip(envelopes, memories or (None,) * len(envelopes), strict=True):
            message.content = self._content[1]
            state = RecordDict(dict(memory)) if memory else None
            contexts.append(node_context(partition_of(message), self._num_clients, self._run_config, state))
        if self._clients.prints:
            with collected_output(self._printed):
                replies = self._clients.answer(envelopes, contexts, summed)
        else:
            replies = self._clients.answer(envelopes, contexts, summed)
            for reply in replies:
                send_out_of_band(reply)
        if not memories:
            return replies, [], self._printed.taken()
        changed = [
            _differs(context.state, memory or {}) for context, memory in zip(contexts, memories, strict=True)
        ]
        return (replies, changed, self._printed.taken()), *(
            context.state if new else None for context, new in zip(contexts, changed, strict=True)
        )

    def evaluate(
        self, arrays: ArrayRecord, splits: str, classes: int, share: tuple[int, int]
    ) -> dict[str, list[Sums]]:
        """Evaluate the global model on a share of the server's examples."""
        inputs = inputs_of(run_config(self._run_config))
        model, _ = inputs.model()
        load_model(model, arrays, inputs.constant)
        return evaluated_share(inputs, model, splits, classes, share)


def _differs(state: RecordDict, memory: Mapping[str, object]) -> bool:
    """Return whether a client has other records than it had; records are replaced, never changed."""
    same = all(record is memory.get(name) for name, record in state.items())
    return not same or len(state) != len(memory)


def stored(objects: Mapping[str, object]) -> Any:
    """Put a session's objects into the object store.

    Raises
    ------
    UserError
        When one cannot be sent.
    """
    return _put(objects, ", ".join(objects)) if objects else objects


def sent(clients: ClientSide) -> Any:
    """Put who answers into the object store; an app may be objects of the driver's session.

    Raises
    ------
    UserError
        When they cannot be sent.
    """
    return _put(clients, "app")


def _put(value: object, what: str) -> Any:
    try:
        return ray.put(value)
    except Exception as error:  # pickling runs code of the objects
        words = " ".join(str(error.__cause__ or error).split())[:200]
        raise UserError(f"{what}: cannot be sent to Ray's workers ({words})") from error


class _OutOfBand:
    """Bytes that arrive as a view of where they lie in the object store; `pickle` would copy them twice."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce__(self) -> tuple[type, tuple[pickle.PickleBuffer]]:
        return memoryview, (pickle.PickleBuffer(self.data),)


def send_out_of_band(reply: Message) -> None:
    """Pickle large arrays out of band, so that the driver reads them in place."""
    if reply.has_content():
        for record in reply.content.values():
            if isinstance(record, ArrayRecord):
                for array in record.values():
                    if len(array.data) >= LARGE:
                        replace_data(array, _OutOfBand(array.data))
