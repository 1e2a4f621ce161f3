"""Executes docs/deployment.md on one machine: every host a folder, systemd, sudo and ssh stood in for."""

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from fedbn_flower.consortium.local import Service, free_port
from fedbn_flower.consortium.programs import PROGRAMS

from .processes import LONG, ROOT

BLOCK = re.compile(r"^```(\S*) *(.*?)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SITES = ("site-a", "site-b")


def blocks(text: str) -> dict[str, str]:
    """The guide's shell blocks by their title, those of one title one after the other."""
    found: dict[str, str] = {}
    for language, words, body in BLOCK.findall(text):
        assert language == "bash", f"a block of {language!r} is not executed"
        title = re.fullmatch(r'title="(.+)"', words.strip())
        assert title, f"on which machine? {body}"
        found[title[1]] = found.get(title[1], "") + body
    return found


@dataclass
class Guide:
    """The machines of the guide; use as a context manager.

    ``services`` are what systemd would run, by the guide's own unit files; ``sooner`` is added to the
    environment of all programs, and ``project`` is what every machine has.
    """

    folder: Path
    project: Path = ROOT
    sooner: dict[str, str] = field(default_factory=dict)
    nginx: str | None = field(default_factory=lambda: shutil.which("nginx", path="/usr/sbin:/usr/bin"))
    services: dict[str, Service] = field(default_factory=dict)

    def __post_init__(self):
        self.blocks = blocks((ROOT / "docs" / "deployment.md").read_text())
        self.port = free_port()
        self.open_port = free_port() if self.nginx else self.port  # without a proxy, the SuperLink's own
        self.site_ports = {site: free_port() for site in SITES}
        shims = self.folder / "shims"
        shims.mkdir(parents=True)
        for name, body in {
            "sudo": 'exec "$@"',
            "ssh": "true",
            "systemctl": 'echo "systemctl $*" >> "$ASKED"',
            "nginx": 'echo "nginx $*" >> "$ASKED"',
        }.items():
            (shims / name).write_text(f"#!/bin/sh\n{body}\n")
            (shims / name).chmod(0o755)
        for machine in ("superlink", "user", *SITES):
            for place in (
                "etc/systemd/system",
                "etc/nginx/conf.d",
                "var/lib/fedbn",
                "var/cache/fedbn",
                "srv",
            ):
                (self.folder / machine / place).mkdir(parents=True)
            ignored = shutil.ignore_patterns(".*", "__pycache__", "runs", "build", "dist", "tests")
            shutil.copytree(self.project, self.folder / machine / "fedbn-flower", ignore=ignored)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Kill what is left: programs of Flower that are asked to end take seconds, one after the other."""
        while self.services:
            self.services.popitem()[1].end_group()

    def here(self, text: str, machine: str) -> str:
        """Names, ports and paths of the guide as they are on this machine; other rounds, no evaluation."""
        state = "superlink" if machine == "user" else machine  # the user speaks of the SuperLink's folders
        for pattern, replacement in (
            (r"superlink\.example\.org:443", f"localhost:{self.open_port}"),
            (r"superlink\.example\.org", "localhost"),
            (r"\b8000\b", str(self.port)),
            (r"\b443\b", str(self.open_port)),
            (r"\b9094\b", str(self.site_ports.get(machine, 0))),
            (r"/opt/fedbn-flower/\.venv/bin", str(PROGRAMS)),
            (r"(?<![\w.])/(etc|srv)/", rf"{self.folder}/{machine}/\1/"),
            (r"(?<![\w.])/var/", f"{self.folder}/{state}/var/"),
            (r"partition-id=0", f"partition-id={SITES.index(machine) if machine in SITES else 0}"),
            (r"shape:1x28x28:10", "shape:1x8x8:10"),
            (r"rounds = 3", "rounds = 1\nfraction-evaluate = 0.0"),
            (r"rounds = 4", "rounds = 5"),
        ):
            text = re.sub(pattern, replacement, text)
        return text

    def environment(self, machine: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("FLWR_")}
        home = self.folder / machine
        path = f"{self.folder / 'shims'}:{PROGRAMS}:{os.environ['PATH']}"
        places = {"HOME": str(home), "TMPDIR": str(home), "ASKED": str(home / "asked")}
        return kept | self.sooner | places | {"PATH": path}

    def run(self, label: str, machine: str, may_fail: bool = False) -> str:
        """Execute a block on a machine, then what it asked of systemd and nginx; its output.

        ``may_fail``: a command may fail, such as one whose SuperLink is killed.
        """
        asked = self.folder / machine / "asked"
        asked.write_text("")
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.here(self.blocks[label], machine)],
            cwd=self.folder / machine / "fedbn-flower", env=self.environment(machine),
            capture_output=True, text=True, timeout=LONG,
        )  # fmt: skip
        assert may_fail or result.returncode == 0, result.stdout + result.stderr
        for request in asked.read_text().splitlines():
            match request.split():
                case ["systemctl", "daemon-reload"]:
                    pass
                case ["systemctl", "enable", "--now", unit]:
                    self.start_unit(unit, machine)
                case ["nginx", "-t"] | ["systemctl", "reload", "nginx"]:
                    self.proxy(machine, only_test=request == "nginx -t")
                case _:
                    raise AssertionError(f"nobody stands in for {request!r}")
        return result.stdout

    def start_unit(self, name: str, machine: str) -> None:
        """What systemd does with a unit file of the kind that the guide has."""
        path = self.folder / machine / "etc/systemd/system" / f"{name}.service"
        text = self.here(path.read_text(), machine)
        path.write_text(text)
        self.verify(path)
        pairs = re.findall(r"^(\w+)=((?:.*\\\n)*.*)$", text.split("[Service]")[1], re.MULTILINE)
        credentials = self.folder / machine / "credentials"
        credentials.mkdir(exist_ok=True)
        environment = dict(self.sooner)
        settings = {}
        places = {"%S": "var/lib", "%C": "var/cache", "%d": "credentials"}
        for key, written in pairs:
            value = written.replace("\\\n", " ")
            for specifier, place in places.items():
                value = value.replace(specifier, str(self.folder / machine / place))
            if key == "Environment":
                environment |= dict(pair.split("=", 1) for pair in shlex.split(value))
            elif key == "EnvironmentFile":
                lines = shlex.split(Path(value).read_text())
                environment |= dict(line.split("=", 1) for line in lines)
            elif key == "LoadCredential":
                credential, source = value.split(":")
                shutil.copy(source, credentials / credential)
            else:
                settings[key] = value
        before, command = (
            [re.sub(r"\$\{(\w+)\}", lambda m: environment[m[1]], word) for word in shlex.split(written)]
            for written in (settings.get("ExecStartPre", "true"), settings["ExecStart"])
        )
        subprocess.run(before, env=environment, check=True, timeout=LONG)
        assert settings["Restart"] == "always"
        log = self.folder / machine / f"{name}.log"
        service = Service(name, command, environment, log, float(settings["RestartSec"]))
        self.services[machine] = service
        service.start()

    @staticmethod
    def verify(unit: Path) -> None:
        if analyze := shutil.which("systemd-analyze"):
            result = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, timeout=LONG)
            known = [line for line in result.stderr.splitlines() if str(unit.name) in line]
            assert not [line for line in known if not re.search("Restart(Steps|MaxDelaySec)", line)], known

    def proxy(self, machine: str, only_test: bool) -> None:
        """Run nginx itself with the guide's server, if it is here."""
        if not self.nginx:
            return
        folder = self.folder / machine / "etc/nginx"
        server = folder / "conf.d/fedbn.conf"
        server.write_text(self.here(server.read_text(), machine))
        scratch = "".join(
            f"{kind}_temp_path {folder}/{kind};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        main = f"pid {folder}/pid; events {{}} http {{ access_log off; {scratch} include {server}; }}"
        (folder / "nginx.conf").write_text(main)
        command = [self.nginx, "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf", "-g", "daemon off;"]
        if only_test:
            subprocess.run([*command, "-t"], check=True, capture_output=True, timeout=LONG)
            return
        self.services["proxy"] = Service("nginx", command, dict(os.environ), folder / "log", 1.0)
        self.services["proxy"].start()
