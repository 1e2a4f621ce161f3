"""The command ``consortium try``: a SuperLink and SuperNodes on this machine, with TLS and authentication.

    fedbn-sim consortium try --sites 2                 # until Ctrl-C; says how to use it
    fedbn-sim consortium try --sites 2 -- flwr run . --stream --run-config "rounds=2"

What stands after ``--`` is run against the federation, which ends with it and with the runs that it started;
the exit status is the command's, or 1 if one of these runs did not complete. The folder (``--folder``) keeps
certificates, keys, logs, the SuperLink's database and each site's ``state-dir``, and can be used again.
A process that dies is started again after ``--restart-after`` seconds, as systemd does.
To see what happens then: ``kill -9 $(cat FOLDER/site-1/log.pid)``.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ..cli.argument_parser import Parser
from ..core.errors import UserError, not_allowed, os_errors_as_user_errors
from .authority import CA_CERTIFICATE, SERVER_CERTIFICATE, SERVER_KEY, make_authority, make_server_certificate
from .programs import environment, of_user, script, superlink, supernode

START_UP = 60.0  # seconds
LOG = "log.txt"
"""The name of the file that has a program's output."""
PID = ".pid"
"""Ends the name of the file, beside a program's log, that holds its process id."""


@dataclass
class Service:
    """A program that is started again when it ends; its whole process group goes with it."""

    name: str
    command: Sequence[str | Path]
    environment: Mapping[str, str]
    log: Path
    restart_after: float
    process: subprocess.Popen | None = None
    starts: int = 0
    _ended: float | None = None

    def start(self) -> None:
        """Start it; its output is added to the log."""
        self.end_group()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(part) for part in self.command],
                env=dict(self.environment), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                cwd=self.log.parent, start_new_session=True,
            )  # fmt: skip
        self.log.with_suffix(PID).write_text(f"{self.process.pid}\n")
        self.starts += 1
        self._ended = None

    def supervise(self) -> None:
        """Start it again when it has been down for `restart_after` seconds."""
        if self.process is None or self.process.poll() is None:
            return
        if self._ended is None:
            self._ended = time.monotonic()
        elif time.monotonic() - self._ended >= self.restart_after:
            self.start()

    def stop(self) -> None:
        """Ask it to end, and see to it."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=15)
        self.end_group()
        self.process = None

    def end_group(self) -> None:
        """Kill what is left of its processes."""
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@dataclass
class LocalFederation:
    """The federation; use as a context manager.

    Parameters
    ----------
    folder : Path
        Where everything is kept.
    supernodes : int
        How many; SuperNode i holds partition i.
    restart_after : float
        Seconds after which what died is started again.
    node_config : str
        Added to every SuperNode's node config.
    signing : bool
        Whether SuperNodes sign in secure aggregation, with the keys that they authenticate with.

    Raises
    ------
    UserError
        When a program does not start; its log says why.
    """

    folder: Path
    supernodes: int = 2
    restart_after: float = 10.0
    node_config: str = ""
    signing: bool = False
    services: dict[str, Service] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        self.port = free_port()
        self.certificates, self.address = self.folder / "certificates", f"127.0.0.1:{self.port}"
        self.environment = environment(self.folder / "user")
        self._watching = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "LocalFederation":
        try:
            self._prepare()
            self.start_superlink()
            self.register(range(self.supernodes))
            for i in range(self.supernodes):
                self.start_supernode(i)
        except BaseException:
            self.stop()
            raise
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, command: Sequence[str | Path], quiet: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a command, such as ``flwr run``, as a user of this federation."""
        return subprocess.run(command, check=False, env=self.environment, capture_output=quiet, text=True)

    def runs(self, but: Collection[str] = ()) -> dict[str, str]:
        """The status of runs by their id, as ``flwr list`` has it: ``running``, ``finished:failed``."""
        listed = json.loads(self._do("flwr", "list", "local", "--format", "json"))
        return {run["run-id"]: run["status"] for run in listed["runs"] if run["run-id"] not in but}

    def all_complete(self, but: Collection[str] = ()) -> bool:
        """Wait for the runs to end, but for those named; whether all completed. Others are told on stderr."""
        runs = self.runs(but)
        while not all(status.startswith("finished") for status in runs.values()):
            time.sleep(1)
            runs = self.runs(but)
        others = {run: status for run, status in runs.items() if status != "finished:completed"}
        for run, status in others.items():
            print(f"run {run}: {status}", file=sys.stderr)
        return not others

    def start_superlink(self) -> None:
        """Start the SuperLink and wait until it answers."""
        key, database = self.certificates / SERVER_KEY, self.folder / "superlink" / "state.db"
        self._start("superlink", superlink(self.address, self.certificates, key, database))
        if not wait_until_answers(self.port):
            raise UserError(f"try: the SuperLink did not start; see {self.services['superlink'].log}")

    def register(self, indices: Iterable[int]) -> None:
        """Make keys for SuperNodes that are new, and register them."""
        homes = [self.folder / f"site-{index}" for index in indices]
        new = [home for home in homes if not (home / "key").exists()]
        for home in new:
            home.mkdir(exist_ok=True)
            self._do("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", home / "key")
        if new:
            self._do(sys.executable, "-c", script("register"), *new)

    def start_supernode(self, index: int) -> None:
        """Register SuperNode ``index``, if it is new, and start it."""
        self.register([index])
        home = self.folder / f"site-{index}"
        key = home / "key"
        config = f'partition-id={index} num-partitions={self.supernodes} state-dir="{home / "state"}"'
        if self.signing:
            partners = self.folder / "partners"
            partners.mkdir(exist_ok=True)
            shutil.copy(f"{key}.pub", partners / f"site-{index}.pub")
            config += f' secagg-key="{key}" secagg-partners="{partners}"'
        config = f"{config} {self.node_config}".strip()
        command = supernode(self.address, free_port(), self.certificates / CA_CERTIFICATE, key, config)
        self._start(home.name, command)

    def stop(self) -> None:
        """End all processes, SuperNodes first."""
        self._watching.set()
        if self._watcher.is_alive():
            self._watcher.join()
        nodes = [service for name, service in self.services.items() if name != "superlink"]
        with ThreadPoolExecutor(max(1, len(nodes))) as together:  # each takes seconds to end
            list(together.map(Service.stop, nodes))
        if "superlink" in self.services:
            self.services["superlink"].stop()

    def _prepare(self) -> None:
        with os_errors_as_user_errors("folder", f"write to {str(self.folder)!r}"):
            self.certificates.mkdir(parents=True, exist_ok=True)
        if not (self.certificates / SERVER_CERTIFICATE).exists():
            make_authority(self.certificates, "local")
            make_server_certificate(self.certificates, ("localhost", "127.0.0.1"))
        of_user(self.folder / "user", "local", self.address, self.certificates)

    def _start(self, name: str, command: Sequence[str | Path]) -> None:
        home = self.folder / name
        home.mkdir(exist_ok=True)
        own = {**self.environment, "FLWR_HOME": str(home / "flwr")}
        self.services[name] = Service(name, command, own, home / LOG, self.restart_after)
        self.services[name].start()

    def _do(self, *command: str | Path) -> str:
        result = self.run(command, quiet=True)
        if result.returncode:
            raise UserError(f"try: {shlex.join(map(str, command))}: {result.stdout}{result.stderr}")
        return result.stdout

    def _watch(self) -> None:
        while not self._watching.wait(0.5):
            for service in list(self.services.values()):  # others may be added meanwhile
                service.supervise()


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def wait_until_answers(port: int) -> bool:
    """Wait for somebody to listen on a port of the loopback interface; whether it came to that."""
    deadline = time.monotonic() + START_UP
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        time.sleep(0.2)
    return False


def try_it(arguments: Sequence[str]) -> int:
    """Bring a federation up, use it or wait for Ctrl-C, and take it down; return the exit status."""
    about = "A SuperLink and SuperNodes on this machine."
    parser = Parser("fedbn-sim consortium try", description=about, allow_abbrev=False)
    parser.add_argument("--sites", type=int, default=2, metavar="N")
    parser.add_argument("--folder", type=Path, help="where everything is kept [a new temporary folder]")
    parser.add_argument("--restart-after", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--node-config", default="", help="added to every SuperNode's node config")
    parser.add_argument("--secagg", action="store_true", help="every site demands secagg='on', and signs")
    parser.add_argument("command", nargs="*", help="what to run against it, after --")
    options = parser.parse_args(arguments)
    if options.sites < 1:
        raise not_allowed("sites", options.sites, "a whole number >= 1")
    folder = options.folder or Path(tempfile.mkdtemp(prefix="federation-"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill is a Ctrl-C
    node_config = f"{options.node_config} secagg-required=true" if options.secagg else options.node_config
    settings = (options.sites, options.restart_after, node_config.strip(), options.secagg)
    with LocalFederation(folder, *settings) as federation:
        print(f"SuperLink and {options.sites} SuperNodes are up; logs are in {federation.folder}")
        try:
            if options.command:
                before = federation.runs()
                status = federation.run(options.command).returncode
                return int(status) or int(not federation.all_complete(but=before))
            print(f"In another shell: FLWR_HOME={federation.environment['FLWR_HOME']} flwr run . --stream")
            print("Ctrl-C ends the federation.")
            threading.Event().wait()
        except KeyboardInterrupt:
            return 130 if options.command else 0
    return 0
