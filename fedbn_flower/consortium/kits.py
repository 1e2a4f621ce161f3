"""The kit of a site: a zip file without a secret, signed by the authority."""

import hashlib
import io
import platform
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import tomli_w
from pydantic import Field

from ..core.errors import UserError, not_allowed, os_errors_as_user_errors
from ..core.files import write_all, write_atomically
from ..core.version import __version__
from .agreement import Address, Bounds, Consortium, Name, Versions, _Table, checked, toml_of
from .authority import CA_CERTIFICATE, authority_fingerprint, is_signed, sign
from .programs import PROGRAMS, script, superlink_unit, supernode_unit

MANIFEST, SIGNATURE, KIT = "MANIFEST", "MANIFEST.sig", "kit.toml"
OF_A_KIT = ("join", "leave", "run")
SITE = "site"
"""The folder of a kit that is the site's own; nothing of it is in the zip file."""
WHEELS = "wheels"
ANOTHER = "ask the operator for another kit"
DATE = (1980, 1, 1, 0, 0, 0)
"""Of every file in a kit: the same kit has the same bytes."""


class Kit(_Table):
    """The content of ``kit.toml``: what a site has agreed to."""

    consortium: Name
    site: Name
    server: Address
    versions: Versions
    partition_id: int = Field(ge=0)
    bounds: Bounds
    """What no study can loosen."""


@dataclass(frozen=True)
class KitFolder:
    """A kit as it is unpacked at a site."""

    folder: Path

    @property
    def kit(self) -> Kit:
        """What it says.

        Raises
        ------
        UserError
            When it is not as the authority has signed it.
        """
        self.check()
        return checked(Kit, toml_of(self.folder / KIT), KIT)

    @property
    def own(self) -> Path:
        """The site's own folder in it."""
        return self.folder / SITE

    @property
    def authority(self) -> Path:
        """The authority's certificate."""
        return self.folder / CA_CERTIFICATE

    def check(self) -> None:
        """Refuse a kit of which a file was changed, added or taken out."""
        try:
            manifest, signature = ((self.folder / name).read_bytes() for name in (MANIFEST, SIGNATURE))
        except OSError as error:
            raise UserError(f"kit: {str(self.folder)!r} is no kit ({error})") from None
        if not is_signed(self.authority, manifest, signature):
            raise UserError(f"kit: {MANIFEST} is not signed by the authority; {ANOTHER}")
        expected = {line[66:]: line[:64] for line in manifest.decode().splitlines()}
        there = (path for path in self.folder.rglob("*") if path.is_symlink() or not path.is_dir())
        with os_errors_as_user_errors("kit", f"read {str(self.folder)!r}"):
            found = {
                str(path.relative_to(self.folder)): _digest(path.read_bytes()) if path.is_file() else ""
                for path in there
                if path.relative_to(self.folder).parts[0] not in (MANIFEST, SIGNATURE, SITE)
            }
        for name in sorted(expected.keys() | found.keys()):
            if found.get(name) != expected.get(name):
                known = "was changed;" if name in found else "is missing;"
                told = known if name in expected else "was added: move it out of here, or"
                raise UserError(f"kit: {name} {told} {ANOTHER}")


def versions() -> dict[str, str]:
    """Return the versions of this machine, on which all machines of a consortium agree."""
    found = {name: version(name).partition("+")[0] for name in ("flwr", "torch")}
    return {"fedbn-flower": __version__, **found, "python": platform.python_version()}


def make_kit(folder: Path, consortium: Consortium, name: str, wheels: Path | None = None) -> bytes:
    """Return the kit of a site, a zip file.

    Parameters
    ----------
    folder : Path
        The consortium's.
    consortium : Consortium
        What it has agreed on.
    name : str
        The site's.
    wheels : Path, optional
        A folder of packages to install without a registry.
    """
    site = consortium.site(name)
    said = {"consortium": consortium.name, "site": name, "partition-id": site.partition_id}
    said |= consortium.model_dump(include={"server", "versions"})
    said |= {"bounds": {**consortium.bounds, **site.bounds}}
    checked(Kit, said, KIT)
    texts = {KIT: tomli_w.dumps(said), "README.md": _page(folder, consortium, name)}
    texts |= {"requirements.txt": _requirements(consortium.versions), "compose.yaml": script("compose")}
    texts |= {"fedbn-supernode.service": supernode_unit("/opt/fedbn"), **{it: script(it) for it in OF_A_KIT}}
    files = {CA_CERTIFICATE: (folder / CA_CERTIFICATE).read_bytes()}
    files |= {name: text.encode() for name, text in texts.items()}
    if wheels is not None:
        found = sorted(wheels.glob("*.whl"))
        if not found:
            raise not_allowed("wheels", str(wheels), "a folder with wheels (pip download ... --dest FOLDER)")
        files |= {f"{WHEELS}/{path.name}": path.read_bytes() for path in found}
    manifest = "".join(f"{_digest(content)}  {path}\n" for path, content in sorted(files.items())).encode()
    return _zipped({**files, MANIFEST: manifest, SIGNATURE: sign(folder, manifest)})


def _page(folder: Path, consortium: Consortium, name: str) -> str:
    template = Path(__file__).with_name("kit_readme.md").read_text()
    contact = consortium.site(name).contact or "whoever sent you this kit"
    told = {"authority": authority_fingerprint(folder / CA_CERTIFICATE), "contact": contact}
    return template.format(site=name, consortium=consortium.name, server=consortium.server, **told)


def _requirements(versions: Mapping[str, str]) -> str:
    return "".join(f"{name}=={version}\n" for name, version in versions.items() if name != "python")


def _zipped(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in sorted(files.items()):
            info = zipfile.ZipInfo(name, DATE)
            info.external_attr = (0o755 if name in OF_A_KIT else 0o644) << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write_superlink(folder: Path, consortium: Consortium) -> None:
    """Write the files of the SuperLink's machine into the consortium's folder."""
    host, port = consortium.server.rsplit(":", 1)
    places = {"HOST": host, "PORT": port, "CONTROL": consortium.control, "FOLDER": str(folder)}
    files = {
        "superlink/fedbn-superlink.service": superlink_unit(str(folder), str(PROGRAMS)),
        "superlink/nginx.conf": script("proxy", **places),
        "superlink/compose.yaml": script("superlink-compose", **places),
        "superlink/install": script("install"),
    }
    write_all(folder, files)
    (folder / "superlink/install").chmod(0o755)


def write_kit(to: Path, content: bytes) -> str:
    """Write a kit, and return its SHA-256."""
    if to.is_dir():
        raise not_allowed("to", str(to), "a file")
    with os_errors_as_user_errors("to", f"write {str(to)!r}"):
        to.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(to, content)
    return _digest(content)
