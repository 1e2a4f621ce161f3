"""What is done at a site: join, run, admit a study, leave. Its own files are in the kit's folder ``site``."""

import fcntl
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomli_w
from cryptography.hazmat.primitives.serialization import PrivateFormat, load_ssh_private_key
from pydantic import Field

from ..core.errors import UserError, not_allowed
from ..core.files import write_atomically
from ..core.text import visible
from ..core.version import __version__
from .admitted import Admitted, read_admitted
from .agreement import Value, _Table, checked, safe_path, toml_of
from .authority import (
    PrivateKey,
    authority_fingerprint,
    fingerprint,
    new_key,
    public_key,
    public_text,
    write_key,
)
from .findings import shown
from .fit import of_bounds, study_config
from .kits import KitFolder
from .log import spent
from .programs import TEXTS, become, supernode, supernode_unit
from .studies import admitted_studies, study_digest, study_keys

KEY, ADMITTED, SETTINGS = "site.key", "admitted", "site.toml"
STUDIES, STUDY_FILES, AUDIT, LOCK = "studies", "admitted-studies", "audit", "lock"
PORT = 9094
"""On which a SuperNode's own processes reach it, on this machine alone."""
UNIT = "fedbn-supernode.service"
UNIT_STATE = Path("/var/lib/fedbn")
UNITS, BOOTED = Path("/etc/systemd/system"), Path("/run/systemd/system")
"""What the unit keeps; where units are, and what is there where systemd runs."""


class Settings(_Table):
    """What a site has said: where its data are, and on which port its own processes meet."""

    data: str
    port: int = Field(PORT, ge=1, lt=2**16)


class AtSite(KitFolder):
    """A kit's folder with what the site has put into it."""

    @property
    def settings(self) -> Settings:
        """What the site has said.

        Raises
        ------
        UserError
            When it has not joined.
        """
        if not os.path.lexists(self.own / SETTINGS):
            raise UserError(f"kit: {str(self.folder)!r} has not joined yet; run ./join --data FOLDER there")
        try:
            return checked(Settings, toml_of(self.own / SETTINGS), SETTINGS)
        except UserError as error:
            raise UserError(f"{error}; remove it, and ./join --data PATH [--port N] writes it anew") from None

    @property
    def key_file(self) -> Path:
        """The private key: where the unit puts it, or in the site's folder."""
        return Path(os.environ.get("CREDENTIALS_DIRECTORY") or self.own) / KEY

    @property
    def kept(self) -> Path:
        """The folder of what it keeps: where systemd has it for the unit, if this user can look, or here."""
        by_unit = UNIT_STATE if has_unit(self) and os.access(UNIT_STATE, os.X_OK) else self.own
        return Path(os.environ.get("STATE_DIRECTORY") or by_unit)

    @property
    def state(self) -> Path:
        """The folder of memories and the ledger."""
        return self.kept / "state"

    @property
    def cache(self) -> Path:
        """The folder of decoded data."""
        return Path(os.environ.get("CACHE_DIRECTORY") or self.own / "cache")

    @property
    def audit(self) -> Path:
        """The folder of the audit log."""
        return self.kept / AUDIT

    @property
    def admitted(self) -> Admitted | None:
        """The list of admitted sites; None before there is one."""
        path = self.own / ADMITTED
        return read_admitted(path, self.authority) if path.exists() else None

    @property
    def server(self) -> str:
        """Where the SuperLink is, as the last list says."""
        return admitted.server if (admitted := self.admitted) else self.kit.server

    def study_files(self) -> list[Path]:
        """The files of the studies that were admitted here."""
        return sorted((self.own / STUDY_FILES).glob("*.toml"))

    def key(self) -> PrivateKey:
        """The site's private key.

        Raises
        ------
        UserError
            When it cannot be read.
        """
        try:
            key = load_ssh_private_key(self.key_file.read_bytes(), None)
            public_key(public_text(key.public_key()))  # type: ignore[arg-type]
        except Exception as error:  # cryptography raises errors of several kinds
            raise UserError(f"key: cannot use {str(self.key_file)!r} ({error})") from None
        assert isinstance(key, PrivateKey)
        return key

    def line(self) -> str:
        """The line that the operator admits."""
        public = self.key().public_key()
        return f"{self.kit.site} {public_text(public)} {fingerprint(public)}"

    def node_config(self) -> dict[str, Value]:
        """The node config of this site."""
        kit = self.kit
        places = {"data-path": safe_path("data", Path(self.settings.data)), "state-dir": self.state}
        places |= {"cache-dir": self.cache, "studies": self.own / STUDIES, "audit": self.audit}
        config: dict[str, Value] = {key: str(path) for key, path in places.items()}
        config |= {"partition-id": kit.partition_id, **kit.bounds}
        if kit.bounds.get("secagg-required"):
            config |= {"secagg-key": str(self.key_file), "secagg-partners": str(self.own / "partners")}
        return config

    def command(self) -> list[str]:
        """The command line of the SuperNode: a list, which no shell reads."""
        words = tomli_w.dumps(self.node_config()).replace(" = ", "=").replace("\n", " ").strip()
        return supernode(self.server, self.settings.port, self.authority, self.key_file, words)


def join(
    at: AtSite, data: Path | None, port: int | None, new_key_wanted: bool, admitted: Path | None
) -> None:
    """Take a site's data, make its key, take the list of admitted sites; what is not given stays.

    Raises
    ------
    UserError
        For a kit that was changed, a path or port that is not allowed, or a list that is not for this site.
    """
    kit = at.kit
    safe_path("kit", at.folder)
    at.own.mkdir(mode=0o755, exist_ok=True)
    at.cache.mkdir(mode=0o700, exist_ok=True)  # decoded data, of whoever looks at them first
    _set(at, data, port)
    if new_key_wanted or not (at.own / KEY).exists():
        write_key(at.own / KEY, new_key(), PrivateFormat.OpenSSH)
    if not (at.own / STUDIES).exists():
        write_atomically(at.own / STUDIES, "")
    write_atomically(at.own / UNIT, supernode_unit(str(at.folder)))
    print(f"consortium {kit.consortium}, site {kit.site}, partition {kit.partition_id}")
    print(f"the authority, to compare over the telephone: {authority_fingerprint(at.authority)}")
    if admitted is not None:
        _take(at, admitted)


def _set(at: AtSite, data: Path | None, port: int | None) -> None:
    before = at.settings.model_dump() if os.path.lexists(at.own / SETTINGS) else {}
    given = {"data": data and str(safe_path("data", data)), "port": port}
    now = before | {key: value for key, value in given.items() if value is not None}
    if "data" not in now:
        raise not_allowed("data", "", "the folder or file of this site's data (./join --data FOLDER)")
    checked(Settings, now, "join")
    write_atomically(at.own / SETTINGS, tomli_w.dumps(now))


def _take(at: AtSite, path: Path) -> None:
    """Take a list of admitted sites, and print what is to be read aloud."""
    kit, found, before = at.kit, read_admitted(path, at.authority), None
    with suppress(UserError):  # a damaged one is replaced
        before = at.admitted
    mine = fingerprint(at.key().public_key())
    if found.consortium != kit.consortium:
        raise not_allowed("admitted", found.consortium, f"the list of {kit.consortium}")
    if before and found.serial < before.serial:
        raise not_allowed("admitted", f"list {found.serial}", f"{before.serial} or later: this one is older")
    if kit.site not in found.sites or found.sites[kit.site].fingerprint != mine:
        raise UserError(f"admitted: this site's key, {mine}, is not in the list; send its line again")
    partners = at.own / "partners"
    shutil.rmtree(partners, ignore_errors=True)
    partners.mkdir()
    for name, site in found.sites.items():
        write_atomically(partners / f"{name}.pub", f"{site.key}\n")
    write_atomically(at.own / ADMITTED, path.read_bytes())
    print(f"list {found.serial}, to read aloud to each other:")
    for name, site in found.sites.items():
        print(f"  {name:20} {site.fingerprint}")


def start(at: AtSite) -> None:
    """Start the SuperNode under systemd, for root; for others say how, unless it runs."""
    if runs(at) and not has_unit(at):
        return print("the SuperNode runs, and goes by all this; start it anew for another kit, data or key")
    if os.geteuid() or not BOOTED.is_dir():
        otherwise = "(as root under systemd, join installs a unit; with Docker: docker compose up -d)"
        return print(f"start it: {at.folder}/run   {otherwise}")
    if (UNITS / UNIT).exists() and not has_unit(at):
        raise UserError(f"unit: {UNIT} is of another kit: ./leave there, or start {at.folder}/run yourself")
    shutil.copy(at.own / UNIT, UNITS / UNIT)
    for words in (["daemon-reload"], ["enable", UNIT], ["restart", UNIT]):
        if subprocess.run(["systemctl", *words], check=False).returncode:
            raise UserError(f"unit: systemctl {' '.join(words)} failed; journalctl -u {UNIT} says why")
    print(f"{UNIT} runs; journalctl -u fedbn-supernode shows what happens")


def has_unit(at: AtSite) -> bool:
    """Return whether the unit of this machine starts this kit."""
    return (UNITS / UNIT).exists() and f"ExecStart={at.folder}/run\n" in (UNITS / UNIT).read_text()


def run(at: AtSite) -> None:
    """Become the SuperNode, which holds a lock that tells of a second one.

    Raises
    ------
    UserError
        When another one runs with this kit.
    """
    command = at.command()
    if at.kept == UNIT_STATE and "STATE_DIRECTORY" not in os.environ:  # with files of another user in it
        raise UserError(f"run: {UNIT} runs this kit; systemctl start {UNIT}")
    at.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (lock := locked(at)) is None:
        raise UserError(f"run: a SuperNode of this site runs ({str(at.state / LOCK)!r}); stop it first")
    os.set_inheritable(lock, True)
    become(command, Path(os.environ.get("FLWR_HOME") or at.state.parent / "flwr"))


def locked(at: AtSite) -> int | None:
    """Return the descriptor of a site's lock, or None if another SuperNode holds it."""
    descriptor = os.open(at.state / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def runs(at: AtSite) -> bool:
    """Return whether a SuperNode runs with this kit, as far as this user can see."""
    if not os.access(at.state / LOCK, os.W_OK):  # none is made: it would be of this user
        return False
    if (lock := locked(at)) is not None:
        os.close(lock)
    return lock is None


def leave(at: AtSite) -> None:
    """Stop, and remove key, memories, ledger and cache; the audit log stays."""
    log = at.audit
    if not os.geteuid() and has_unit(at) and BOOTED.is_dir():
        for words in (["disable", "--now", UNIT], ["clean", "--what=cache", UNIT]):
            subprocess.run(["systemctl", *words], check=False)
        for name in ("state", "flwr"):
            shutil.rmtree(UNIT_STATE / name, ignore_errors=True)
        (UNITS / UNIT).unlink()
    if runs(at):
        raise UserError("leave: the SuperNode of this site runs; stop it first, then ./leave again")
    for name in ("partners", "state", "cache", "flwr", STUDY_FILES):
        shutil.rmtree(at.own / name, ignore_errors=True)
    for name in (KEY, ADMITTED, SETTINGS, STUDIES, UNIT):
        (at.own / name).unlink(missing_ok=True)
    print(f"left; the audit log is in {log}. Tell the operator that {at.kit.site} has left")


def admit_study(at: AtSite, file: Path) -> None:
    """Show what a study would do, and how it keeps each bound of this site, and admit it.

    Raises
    ------
    UserError
        When this site would refuse it, or the operator's list names studies, and this is none of them.
    """
    print(*sentences(file, at), sep="\n")
    if shown(of_bounds(study_config(study_keys(file)), at.node_config())):
        otherwise = "ask the operator for another study, or for a kit with other bounds"
        raise UserError(f"study: this site would refuse a run of {file.name}; {otherwise}")
    digest = study_digest(file)
    if (told := at.admitted) and told.studies and digest not in told.studies.values():
        agreed = at.kit.versions.get("fedbn-flower", __version__)
        why = f"fedbn-flower is {__version__} here, and {agreed} was agreed on"
        if __version__ == agreed:
            why = "the list is older than the study: ask for the new one, then ./join --admitted FILE"
        raise UserError(f"study: list {told.serial} here does not have {file.name} ({digest}); {why}")
    studies = {**admitted_studies(at.own / STUDIES), digest: visible(file.stem)}
    (at.own / STUDY_FILES).mkdir(exist_ok=True)
    write_atomically(at.own / STUDY_FILES / f"{visible(file.stem)}.toml", file.read_bytes())
    write_atomically(at.own / STUDIES, "".join(f"{key} {name}\n" for key, name in studies.items()))
    print(f"admitted: {visible(file.stem)}")


def sentences(file: Path, at: AtSite) -> list[str]:
    """Return what a study would run, and what would leave a site, in plain sentences."""
    config = study_config(study_keys(file)).to_user_config()
    told = [(words, config.get(key)) for key, words in toml_of(TEXTS)["study-words"].items()]
    found = [f"{words} {value}." for words, value in told if value not in (None, "", False)]
    masked = "a masked update, of which the server learns the sum"
    leaves = masked if config["secagg"] == "on" else "its update of the model"
    found.append(f"Each round this site sends {leaves}, and {_metrics(config)}.")
    most = at.kit.bounds.get("dp-max-epsilon")
    left = f" of at most {most}" if most else "; no bound is set (dp-max-epsilon)"
    found.append(f"Epsilon spent here over all runs: {spent(at.node_config()):g}{left}.")
    found.append(f"Digest, with the code here: {study_digest(file)}.")
    return found


def _metrics(config: dict[str, Any]) -> str:
    if config["dp"] in ("local", "example") and not config["dp-metrics"]:
        return "no metrics"
    if config["secagg"] == "on":
        return "sums of metrics"
    return "loss, accuracy or what the problem has, and numbers of examples"
