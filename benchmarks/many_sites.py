"""What a server takes a round, by number of sites: a real SuperLink, and SuperNodes among driven sites.

    python benchmarks/many_sites.py --sites 2,8,16,32,64

Every row is a federation of its own on this machine, with TLS and authentication, in which ``flwr run``
trains the digits. ``--real`` of the sites are SuperNodes; the rest are driven (`driven_sites`). Seconds and
CPU are those of a round, from the end of the first to the end of the last but one; memory is the most that a
process had resident; bytes are those that Flower counts between SuperLink and sites, a round.

With ``--late``, the first site, which is driven then, answers so many seconds later than it would.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.driven_sites import DrivenSites  # noqa: E402
from benchmarks.simulation_peers.recorder import descendants  # noqa: E402
from fedbn_flower.consortium.local import LocalFederation  # noqa: E402

SERVER_APP = "flwr-serverapp"
BETWEEN_LOOKS = 0.1
HEAD = (
    "| sites | of them SuperNodes | s a round | SuperLink, CPU s | ServerApp, CPU s | SuperLink, MB |"
    " ServerApp, MB | MB in | MB out |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


@dataclass
class ManySites(LocalFederation):
    """A federation of which only the first few sites are SuperNodes."""

    real: int = 2

    def register(self, indices: Iterable[int]) -> None:
        """Register SuperNodes, but no sites that are driven: those register themselves."""
        super().register(index for index in indices if index < self.real)

    def start_supernode(self, index: int) -> None:
        """Start a SuperNode, unless the site is driven."""
        if index < self.real:
            super().start_supernode(index)


class Moment(NamedTuple):
    """A clock, and the CPU seconds that SuperLink and ServerApp have had."""

    seconds: float
    superlink: float
    server_app: float


@dataclass
class Server:
    """Watches the processes of a server, and the folder of its run."""

    superlink: int
    folder: Path
    superlink_peak: int = 0
    server_app_peak: int = 0

    def __post_init__(self) -> None:
        self.rounds: dict[int, Moment] = {}

    def look(self) -> None:
        """Note the peaks of memory, and the moment at which a round is first seen to be done."""
        server_app = next((pid for pid in descendants(self.superlink) if SERVER_APP in command(pid)), None)
        self.superlink_peak = max(self.superlink_peak, peak_bytes(self.superlink))
        if server_app is None:
            return
        self.server_app_peak = max(self.server_app_peak, peak_bytes(server_app))
        metrics = self.folder / "metrics.csv"
        done = metrics.read_text().count("\n") - 1 if metrics.exists() else 0
        if done > 0 and done not in self.rounds:
            self.rounds[done] = Moment(time.monotonic(), cpu_seconds(self.superlink), cpu_seconds(server_app))

    def a_round(self, last: int) -> Moment:
        """Return what a round took, from the first to this one."""
        first = min(self.rounds)
        pairs = zip(self.rounds[first], self.rounds[last], strict=True)
        return Moment(*((after - before) / (last - first) for before, after in pairs))


def command(pid: int) -> str:
    """Return the name of the program that a process runs; empty if it has ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return " ".join(Path(os.fsdecode(word)).name for word in words[:2])


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, of its user's part and of the kernel's."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_bytes(pid: int) -> int:
    """Return the most memory that a process has had resident; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def traffic(federation: LocalFederation) -> tuple[int, int]:
    """Return the bytes that came to the SuperLink and that went out, of its only run."""
    listed = federation.run(["flwr", "list", "local", "--format", "json"], quiet=True)
    (run,) = json.loads(listed.stdout)["runs"]
    return run["network-traffic"]["inbound-bytes"], run["network-traffic"]["outbound-bytes"]


def measured(sites: int, real: int, rounds: int, model: str, place: Path, late: float = 0.0) -> str:
    """Run one federation and return its row of the table."""
    folder = place / "run"
    keys = {
        "dataset": "digits", "num-clients": sites, "partition": "iid", "client": "shared", "model": model,
        "local-epochs": 1, "rounds": rounds, "cache-dir": str(place / "cache"), "run-dir": str(folder),
    }  # fmt: skip
    words = " ".join(f"{key}={value!r}" for key, value in keys.items())
    with ManySites(place / "federation", sites, real=real) as federation:
        address = f"127.0.0.1:{federation.port}"
        certificate = federation.folder / "certificates" / "ca.crt"
        superlink = federation.services["superlink"].process
        assert superlink
        server = Server(superlink.pid, folder)
        with DrivenSites(address, certificate, range(min(real, sites), sites), sites, late) as driven:
            run = subprocess.Popen(
                ["flwr", "run", ROOT, "local", "--stream", "--run-config", words],
                env=federation.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                while run.poll() is None:
                    driven.check()
                    server.look()
                    time.sleep(BETWEEN_LOOKS)
            finally:
                run.terminate()
                run.wait()
        if not federation.all_complete():
            raise RuntimeError(f"the run did not complete; see {federation.services['superlink'].log}")
        moved = (total / rounds / 1e6 for total in traffic(federation))
    spent = server.a_round(rounds - 1)
    figures = [f"{spent.seconds:.1f}", f"{spent.superlink:.2f}", f"{spent.server_app:.2f}"]
    figures += [f"{peak / 1e6:.0f}" for peak in (server.superlink_peak, server.server_app_peak)]
    figures += [f"{value:.1f}" for value in moved]
    return f"| {' | '.join([str(sites), str(min(real, sites)), *figures])} |"


def main() -> None:
    """Run a federation of each size and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sites", default="2,8,16,32,64")
    parser.add_argument("--real", type=int, default=2, help="how many are SuperNodes")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--model", default="mlp-bn")
    parser.add_argument("--late", type=float, default=0.0, help="seconds of the first site; needs --real 0")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill ends what was started, too
    if options.rounds < 3:
        parser.error(f"--rounds: {options.rounds} is not allowed; expected a whole number >= 3")
    if options.late and options.real:
        parser.error(f"--late: needs --real 0; {options.real} of the sites are SuperNodes")
    print(HEAD, flush=True)
    for sites in map(int, options.sites.split(",")):
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            row = measured(sites, options.real, options.rounds, options.model, place, options.late)
        print(row, flush=True)


if __name__ == "__main__":
    main()
