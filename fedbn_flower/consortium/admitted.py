"""The list of admitted sites: what the authority tells all of them, in one signed file."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from ..core.errors import UserError
from ..core.files import json_text, write_atomically
from .agreement import FILE, Address, Consortium, Digest, Name, _Table, checked
from .authority import is_signed, sign

SUFFIX = ".admitted"


class AdmittedSite(_Table):
    """A site as the others are told of it."""

    partition_id: int = Field(ge=0)
    key: str
    fingerprint: str


class Admitted(_Table):
    """What the list says."""

    consortium: Name
    serial: int
    server: Address
    sites: dict[Name, AdmittedSite]
    studies: Annotated[dict[Name, Digest], Field(default_factory=dict)]


def write_admitted(folder: Path, consortium: Consortium) -> Path:
    """Write the signed list of a consortium into its folder, and return its file."""
    told = {*AdmittedSite.model_fields}
    sites = {name: site.model_dump(by_alias=True, include=told) for name, site in consortium.admitted.items()}
    agreed = consortium.model_dump(include={"serial", "server", "studies"})
    consortium.check()
    said = checked(Admitted, {"consortium": consortium.name, "sites": sites, **agreed}, FILE)
    text = json_text(said.model_dump(by_alias=True))
    signature = base64.b64encode(sign(folder, text.encode())).decode()
    path = folder / f"{consortium.name}{SUFFIX}"
    write_atomically(path, json_text({"admitted": text, "signature": signature}) + "\n")
    return path


def read_admitted(path: Path, authority: Path) -> Admitted:
    """Return a list once it is known to be the authority's.

    Raises
    ------
    UserError
        When it cannot be read, or somebody else has written it.
    """
    try:
        found: Mapping[str, str] = json.loads(path.read_text())
        text, signature = str(found["admitted"]), base64.b64decode(found["signature"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"admitted: {str(path)!r} is no list of admitted sites ({error})") from None
    if not is_signed(authority, text.encode(), signature):
        raise UserError(f"admitted: {str(path)!r} is not signed by the authority; ask the operator again")
    return checked(Admitted, json.loads(text), path.name)
