"""Flower's programs, as they are beside this Python, and the scripts of a kit and a SuperLink.

The texts are the same but for paths and hosts. No other value of ``consortium.toml`` is in a script:
programs read it from files.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn
from urllib.request import getproxies

from ..core.errors import UserError, os_errors_as_user_errors
from ..core.files import write_atomically
from .agreement import toml_of
from .authority import CA_CERTIFICATE, SERVER_CERTIFICATE

PROGRAMS = Path(sys.executable).parent
TEXTS = Path(__file__).with_name("scripts.toml")
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}  # fmt: skip


def program(name: str) -> str:
    """Return the path of one of Flower's programs.

    Raises
    ------
    UserError
        When it is not there.
    """
    found = shutil.which(name, path=str(PROGRAMS))
    if not found:
        raise UserError(f"{name}: not in {str(PROGRAMS)!r}, beside this Python; install fedbn-flower there")
    return found


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a program of Flower's, with its folder: it finds the others, and reaches this
    machine's without the proxy that may be set for other places.
    """
    path = f"{PROGRAMS}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    direct = ",".join(filter(None, (getproxies().get("no"), "127.0.0.1")))
    own = {"PATH": path, "FLWR_HOME": str(home.resolve()), "no_proxy": direct, "NO_PROXY": direct}
    return {**os.environ, **QUIET, **own}


def of_user(home: Path, name: str, address: str, folder: Path) -> dict[str, str]:
    """Return the environment in which ``flwr`` knows one SuperLink, with the authority of a folder."""
    certificates = (folder / CA_CERTIFICATE).resolve()
    text = f'[superlink]\ndefault = "{name}"\n\n[superlink.{name}]\naddress = "{address}"\n'
    with os_errors_as_user_errors("folder", f"write to {str(home)!r}"):
        home.mkdir(exist_ok=True)
        write_atomically(home / "config.toml", f'{text}root-certificates = "{certificates}"\n')
    return environment(home)


def superlink(address: str, folder: Path, key: Path, database: Path) -> list[str]:
    """Return the command line of a SuperLink with the certificates of a folder."""
    host, port = address.rsplit(":", 1)
    return [
        program("flower-superlink"), "--host", host, "--port", port, "--enable-supernode-auth",
        "--ssl-ca-certfile", str(folder / CA_CERTIFICATE), "--ssl-certfile", str(folder / SERVER_CERTIFICATE),
        "--ssl-keyfile", str(key), "--database", str(database), "--disable-runtime-dependency-installation",
    ]  # fmt: skip


def supernode(address: str, port: int, authority: Path, key: Path, node_config: str) -> list[str]:
    """Return the command line of a SuperNode: a list, which no shell reads."""
    return [
        program("flower-supernode"), "--superlink", address, "--port", str(port),
        "--root-certificates", str(authority), "--auth-supernode-private-key", str(key),
        "--node-config", node_config,
    ]  # fmt: skip


@contextmanager
def whole_or_none(folder: Path) -> Iterator[None]:
    """Remove a new folder whose making ends early: what is there would bar the next try."""
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def become(command: list[str], home: Path) -> NoReturn:
    """Run a command in the place of this process; what it writes is not for everybody on this machine."""
    sys.stdout.flush()
    os.umask(os.umask(0o027) | 0o027)
    os.execve(command[0], command, environment(home))


def script(name: str, **places: str) -> str:
    """Return a text by its name, with values of its places, such as ``FOLDER``."""
    return filled(str(toml_of(TEXTS)[name]), places)


def filled(text: str, places: Mapping[str, str]) -> str:
    """Return a text with the values of its places: of each @NAME@."""
    return re.sub("@([A-Z]+)@", lambda found: places[found[1]], text)


def supernode_unit(folder: str) -> str:
    """Return the unit of a site whose kit is in a folder; ``join`` writes it with the folder's real place."""
    key, start = f"site.key:{folder}/site/site.key", f"{folder}/run"
    return script("unit", TITLE="Flower SuperNode", KEY=key, START=start, STATE="fedbn")


def superlink_unit(folder: str, programs: str) -> str:
    """Return the unit of the SuperLink of a consortium's folder."""
    key = f"server.key:{folder}/secret/server.key"
    start = f"{programs}/fedbn-sim consortium superlink {folder}"
    return script("unit", TITLE="Flower SuperLink", KEY=key, START=start, STATE="fedbn-superlink")
