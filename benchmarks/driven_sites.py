"""Sites of one process: each speaks Flower's Fleet API as a SuperNode does, and answers with our own client.

A SuperNode and what it starts take half a gigabyte, so a machine has room for few. To the SuperLink these are
the same: Flower's own connection, a key and heartbeats each, a look for messages every three seconds, and the
objects of each message and answer pulled and pushed one by one. They start no process for a message, and only
one of them trains at a time.
"""

import threading
import time
from pathlib import Path
from typing import Any, cast

from flwr.app import Context, Message, MessageType, RecordDict, UserConfig
from flwr.common.config import get_fused_config_from_fab
from flwr.proto.control_pb2 import RegisterNodeRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import (
    inflate_object_from_contents,
    pull_objects,
    push_object_contents_from_iterable,
)
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supercore.run import RunNotRunningException
from flwr.supernode.fleet_http_connection import http_request_response

from fedbn_flower.core.private import identify_process, set_message_id
from fedbn_flower.site.adapter import app

BETWEEN_LOOKS = 3.0
"""Seconds, of a Flower SuperNode, between two looks for messages that find none."""


class DrivenSites:
    """Sites that this process drives; use as a context manager.

    Parameters
    ----------
    address : str
        Of the SuperLink, which authenticates SuperNodes.
    certificate : Path
        That of its authority.
    partitions : range
        Those that the sites hold, one each.
    num_partitions : int
        Of the whole federation.
    late : float
        Seconds by which the updates of partition 0 come later.

    Raises
    ------
    RuntimeError
        When a site fails, from its error: on entering, which waits until all are connected, on leaving, or in
        `check`.
    """

    def __init__(
        self, address: str, certificate: Path, partitions: range, num_partitions: int, late: float = 0.0
    ) -> None:
        self.address = address
        self.certificate = certificate
        self.num_partitions = num_partitions
        self.late = late
        self.answered = 0
        self.connected = 0
        self._errors: list[Exception] = []
        self._ended = threading.Event()
        self._in_turn = threading.Lock()  # one site trains at a time, as who this process is
        self._sites = [threading.Thread(target=self._site, args=(i,), daemon=True) for i in partitions]

    def __enter__(self) -> "DrivenSites":
        for site in self._sites:
            site.start()
        try:
            while self.connected < len(self._sites):
                self.check()
                time.sleep(0.1)
        except RuntimeError:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self.check()

    def check(self) -> None:
        """Raise an error if a site has failed."""
        if self._errors:
            raise RuntimeError("a driven site failed") from self._errors[0]

    def _end(self) -> None:
        self._ended.set()
        for site in self._sites:
            site.join()

    def _site(self, partition: int) -> None:
        keys = generate_key_pairs()
        try:
            self._register(public_key_to_bytes(keys[1]))
            with http_request_response(self.address, False, str(self.certificate), keys) as fleet:
                self._answer_messages(partition, fleet)
        except Exception as error:
            self._errors.append(error)

    def _register(self, public_key: bytes) -> None:
        """Do what ``flwr supernode register`` does."""
        certificate = self.certificate.read_bytes()
        version = [RuntimeVersionHttpInterceptor(component_name="driven site")]
        with ControlHttpClient.from_server_address(self.address, False, certificate, version) as control:
            control.RegisterNode(RegisterNodeRequest(public_key=public_key))

    def _answer_messages(self, partition: int, fleet: Any) -> None:
        node_id, receive, send, get_run, get_fab, pull_object, push_object, confirm = fleet
        with self._in_turn:
            self.connected += 1
        contexts: dict[int, Context] = {}
        while not self._ended.is_set():
            received = receive()
            if received is None:
                self._ended.wait(BETWEEN_LOOKS)
                continue
            shell, tree = received
            run_id, message_id = shell.metadata.run_id, shell.metadata.message_id
            try:
                if run_id not in contexts:
                    run = get_run(run_id)
                    run_config = get_fused_config_from_fab(get_fab(run.fab_hash, run_id).content, run)
                    where: UserConfig = {"partition-id": partition, "num-partitions": self.num_partitions}
                    contexts[run_id] = Context(run_id, node_id, where, RecordDict(), run_config)
                ids = [part.object_id for part in iterate_object_tree(tree)]
                contents = pull_objects(ids, lambda one: pull_object(run_id, one))  # noqa: B023
                confirm(run_id, message_id)
                message = cast(Message, inflate_object_from_contents(message_id, contents))
                set_message_id(message, message_id)
                if partition == 0 and message.metadata.message_type == MessageType.TRAIN:
                    self._ended.wait(self.late)
                reply, seconds = self._answer(message, contexts[run_id])
                with no_object_id_recompute():
                    set_message_id(reply, reply.object_id)
                    answer_tree, objects = get_object_tree(reply), get_all_nested_objects(reply)
                    wanted, session = send(reply, answer_tree, seconds)
                    push_object_contents_from_iterable(
                        ((one, objects[one].deflate()) for one in wanted),
                        lambda one, data: push_object(run_id, session, one, data),  # noqa: B023
                    )
            except RunNotRunningException:  # it has ended, and nobody waits for the answer
                continue
            with self._in_turn:
                self.answered += 1

    def _answer(self, message: Message, context: Context) -> tuple[Message, float]:
        """Return the client's answer and the seconds that it took."""
        with self._in_turn:
            began = time.monotonic()
            identify_process(context.run_id, context.node_id)
            return app(message, context), time.monotonic() - began
