"""Flower's and Ray's private parts: nothing else in the project imports or touches one.

Both may change them in any version: ``pyproject.toml`` bounds the versions by what was tried.
"""

import copy
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from functools import wraps
from types import SimpleNamespace
from typing import Any

from flwr.app import Array, ArrayRecord, Context, Error, Message, RecordDict, UserConfig
from flwr.app.message import make_message  # Message itself takes no metadata
from flwr.app.message import remove_content_from_message as without_content  # else content goes with a call
from flwr.app.metadata import Metadata
from flwr.clientapp.client_app import ClientAppException  # what the reason of an error reply names
from flwr.common import (
    Parameters,
    serde,  # what travels between Flower's own processes
)
from flwr.common.config import (
    flatten_dict,
    fuse_dicts,
    get_project_config,
    parse_config_args,
    validate_config,
)
from flwr.common.constant import (
    NOOP_ACCOUNT_NAME,  # whose the nodes of a simulation are
    NOOP_FLWR_AID,
    SUPERLINK_NODE_ID,  # what a reply is addressed to
    ErrorCode,  # Error, which is public, takes one
)
from flwr.common.logger import ConsoleHandler  # writes colours into files too
from flwr.proto.message_pb2 import Context as ContextProto
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.node_pb2 import NodeInfo  # what Grid.get_nodes gives
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictProto
from flwr.server import SimpleClientManager
from flwr.server import server as legacy_server
from flwr.server.compat import LegacyContext  # of Flower's workflows
from flwr.server.compat import app as legacy_app
from flwr.server.history import History  # of the strategies before the Message API
from flwr.server.server import Server
from flwr.server.server_config import ServerConfig
from flwr.server.utils import validate_message
from flwr.server.workflow.constant import MAIN_PARAMS_RECORD
from flwr.serverapp import Grid
from flwr.serverapp.strategy import fedavg, fedxgb_cyclic, strategy_utils
from flwr.supercore.constant import SYSTEM_MESSAGE_TYPE, NodeStatus
from flwr.supercore.object_ref import load_app
from flwr.supercore.run import Run  # Grid, which is public, has one
from flwr.supercore.task_identity import TaskIdentity  # Message asks for it, and no public call sets it

LOGGER = logging.getLogger("flwr.fedbn")

DAY = 86_400  # seconds; SimpleClientManager's default

__all__ = [
    "SUPERLINK_NODE_ID",
    "ClientAppException",
    "ErrorCode",
    "History",
    "LegacyContext",
    "NodeInfo",
    "Run",
    "Server",
    "ServerConfig",
    "flatten_dict",
    "fuse_dicts",
    "get_project_config",
    "load_app",
    "parse_config_args",
    "validate_config",
    "without_content",
]


def identify_process(run_id: int, node_id: int = SUPERLINK_NODE_ID, task_id: int = 1) -> None:
    """Give this process the identity that ``Message.__init__`` asks for."""
    TaskIdentity.run_id = run_id
    TaskIdentity.node_id = node_id
    TaskIdentity.task_id = task_id


def process_identity() -> tuple[int, int, int]:
    """Return the run, the node and the task of this process, as `identify_process` takes them."""
    return TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id


def message_bytes(message: Message) -> bytes:
    """Serialize a message as Flower does between processes; less than 2 GiB."""
    data: bytes = serde.message_to_proto(message).SerializeToString()
    return data


def message_of(data: bytes) -> Message:
    """Return the message of `message_bytes`."""
    return serde.message_from_proto(MessageProto.FromString(data))


def records_bytes(records: RecordDict) -> bytes:
    """Serialize records as Flower does between processes; less than 2 GiB."""
    data: bytes = serde.recorddict_to_proto(records).SerializeToString()
    return data


def records_of(data: bytes) -> RecordDict:
    """Return the records of `records_bytes`."""
    return serde.recorddict_from_proto(RecordDictProto.FromString(data))


def context_bytes(context: Context) -> bytes:
    """Serialize a context as Flower does between processes; less than 2 GiB."""
    data: bytes = serde.context_to_proto(context).SerializeToString()
    return data


def context_of(data: bytes) -> Context:
    """Return the context of `context_bytes`."""
    return serde.context_from_proto(ContextProto.FromString(data))


def set_message_id(message: Message, message_id: str) -> None:
    """Set a message's id, as Flower's own grids do: a reply names it."""
    message.metadata.__dict__["_message_id"] = message_id


def with_content(message: Message, content: RecordDict, message_type: str = "") -> Message:
    """Return a copy of a message with another content, and of another type if one is given.

    A new one would need the identity of the process, which those of Flower's simulation lack.
    """
    metadata = copy.copy(message.metadata)
    metadata.message_type = message_type or metadata.message_type
    return make_message(metadata, content)


def replace_data(array: Array, data: object) -> None:
    """Put other data into a frozen Array, unchecked: they are pickled in their own way."""
    array.__dict__["data"] = data


def console_handlers(logger: logging.Logger) -> list[ConsoleHandler]:
    """Return the handlers of Flower's log that colour what they write."""
    return [handler for handler in logger.handlers if isinstance(handler, ConsoleHandler)]


def retry_invoker_of(grid: Grid) -> Any:
    """Return what repeats the calls of Flower's own grid, by default for ever; None of other grids."""
    return getattr(grid, "_retry_invoker", None)


@contextmanager
def daemons_in_groups_of_their_own() -> Iterator[None]:
    """Start Ray's daemons in process groups of their own.

    What is sent to this process's group, as by a terminal or a scheduler of jobs, does not reach the daemons
    of a Ray that is started within: without its raylet, Ray would end this process without a word before
    what was done is saved. They end with this process, the raylet's agents too once they have tried to report
    that to a control service that has ended as well: for some seconds, not for the minute that is usual.
    """
    from ray._private import services  # Ray has no option for it; imported late: half a second

    popen: Callable[..., Any] = services.ConsolePopen

    def start(*arguments: Any, env: Mapping[str, str], **options: Any) -> Any:
        env = {"RAY_gcs_rpc_server_reconnect_timeout_s": "5", **env}
        return popen(*arguments, env=env, process_group=0, **options)

    services.ConsolePopen = start  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        services.ConsolePopen = popen  # type: ignore[assignment,misc]


def ray_errors_in_the_log() -> None:
    """Keep what Ray's daemons report from standard output: it is logged, below what is shown."""
    from ray._private import worker  # Ray has no option for it

    def log(data: Mapping[str, Any], ignore_prefix: bool = False) -> None:
        LOGGER.debug("Ray: %s", " ".join(map(str, data.get("lines", ()))))

    worker.print_to_stdstream = log


def app_run(run_id: int, app_id: str, version: str, overrides: UserConfig) -> Run:
    """Return what Flower's ``grid.run`` says of a run."""
    run = Run.create_empty(run_id)
    run.fab_id, run.fab_version, run.override_config = app_id, version, dict(overrides)
    return run


def message_errors(message: Message, is_reply: bool) -> list[str]:
    """Return what Flower's SuperLink would refuse a message for; it gives the id itself."""
    return [error for error in validate_message(message, is_reply) if "message_id`" not in error or is_reply]


def online_node(node_id: int) -> NodeInfo:
    """Return what Flower's engine says of each of its virtual nodes."""
    return NodeInfo(
        node_id=node_id,
        owner_aid=NOOP_FLWR_AID,
        owner_name=NOOP_ACCOUNT_NAME,
        status=NodeStatus.ONLINE,
    )


def unavailable(message_id: str, replied: bool = False) -> Message:
    """Return what Flower answers where it has no reply to a message, or none within the message's ``ttl``;
    or, with ``replied``, where the reply's own ``ttl`` is over."""
    code = ErrorCode.REPLY_MESSAGE_UNAVAILABLE if replied else ErrorCode.MESSAGE_UNAVAILABLE
    metadata = Metadata(
        run_id=TaskIdentity.run_id,
        message_id=f"no-reply-to-{message_id}",
        src_node_id=SUPERLINK_NODE_ID,
        dst_node_id=SUPERLINK_NODE_ID,
        reply_to_message_id=message_id,
        group_id="",
        created_at=time.time(),
        ttl=0.0,
        message_type=SYSTEM_MESSAGE_TYPE,
    )
    error = Error(code, "Message unavailable: it does not exist, or has expired.")
    return make_message(metadata=metadata, error=error)


@contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    """Give an attribute of a class or module another value while the context lasts."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def instances_made(classes: Sequence[type], made: Callable[[Any], None]) -> Iterator[None]:
    """Call ``made`` with every instance of Flower's classes that is made within."""

    def watched(init: Callable[..., None]) -> Callable[..., None]:
        @wraps(init)
        def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **kwargs)
            made(self)

        return initialise

    with ExitStack() as stack:
        for one in classes:
            stack.enter_context(replaced(one, "__init__", watched(one.__init__)))  # type: ignore[misc]
        yield


@contextmanager
def legacy_fits(began: Callable[[Server], None]) -> Iterator[None]:
    """Call ``began`` with every legacy server whose rounds begin, whenever it was made."""

    def watched(fit: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(fit)
        def fitting(*args: Any, **kwargs: Any) -> Any:
            began(args[0] if args else kwargs["server"])
            return fit(*args, **kwargs)

        return fitting

    with (
        replaced(Server, "fit", watched(Server.fit)),
        replaced(legacy_app, "run_fl", watched(legacy_server.run_fl)),  # which calls a subclass's own fit
    ):
        yield


def legacy_parameters(made: Server | LegacyContext) -> Parameters:
    """Return the model that a legacy server, or a workflow's context, has; it may have no tensors."""
    if isinstance(made, Server):
        return made.parameters
    arrays = list(made.state.array_records.get(MAIN_PARAMS_RECORD, ArrayRecord()).values())
    return Parameters([array.data for array in arrays], arrays[0].stype if arrays else "")


@contextmanager
def calls_of_legacy_servers(
    executor: type[Executor], wait: Callable[..., tuple[Sequence[Future], set[Future]]]
) -> Iterator[None]:
    """Have Flower's legacy servers call their clients through this executor, not on a thread each."""
    futures = SimpleNamespace(ThreadPoolExecutor=executor, wait=wait, Future=Future)
    with replaced(legacy_server, "concurrent", SimpleNamespace(futures=futures)):
        yield


@contextmanager
def waits_for_nodes(check: Callable[[int], None]) -> Iterator[None]:
    """Call ``check`` with the number of nodes that a strategy of Flower's waits for, a day or more."""
    wait_for, sample = SimpleClientManager.wait_for, strategy_utils.sample_nodes

    @wraps(wait_for)
    def checked_wait(self: SimpleClientManager, num_clients: int, timeout: int = DAY) -> bool:
        if timeout >= DAY:
            check(num_clients)
        return wait_for(self, num_clients, timeout)

    @wraps(sample)
    def checked_sample(grid: Grid, min_available_nodes: int, sample_size: int) -> tuple[list[int], list[int]]:
        check(max(min_available_nodes, sample_size))
        return sample(grid, min_available_nodes, sample_size)

    with ExitStack() as stack:
        stack.enter_context(replaced(SimpleClientManager, "wait_for", checked_wait))
        for module in (strategy_utils, fedavg, fedxgb_cyclic):  # each has imported it
            stack.enter_context(replaced(module, "sample_nodes", checked_sample))
        yield
