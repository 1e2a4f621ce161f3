"""What a consortium has agreed on: ``consortium.toml``, its one truth, checked whenever it is read.

No value of it reaches a shell: names and hosts have safe characters only, and programs are started with lists
of arguments.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tomli_w
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..core.errors import UserError, not_allowed, unknown_name
from ..core.files import write_atomically
from ..core.ground.settings import flag_of
from ..privacy.floors import LEAST_SUM, SECAGG_MIN, SECAGG_REQUIRED, Floors
from .authority import fingerprint, public_key

FILE = "consortium.toml"
NAME = r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?"
LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
HOST = rf"{LABEL}(?:\.{LABEL})*"
PORT = "(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
"""1 to 65535."""
PLAIN_TEXT = r"[\w.,:+@/() -]*"
"""What a value of a node config, and a contact, may have: nothing that a shell or Flower would read."""
PATH = re.compile(r"[A-Za-z0-9._/+@-]+")
"""A path that a unit, a node config and a shell read as it is."""

PATTERNS = {
    rf"^{NAME}$": "up to 40 small letters, digits and - between them",
    rf"^{HOST}$": "a host, as superlink.example.org or 10.0.0.5",
    rf"^{HOST}:{PORT}$": "HOST:PORT, as superlink.example.org:443",
    rf"^{PLAIN_TEXT}$": "letters, digits, spaces and . , : + @ / ( ) _ -",
    r"^[0-9a-f]{64}$": "64 hexadecimal digits",
    r"^[0-9A-Za-z][0-9A-Za-z.+!-]*$": "a version, as 1.42.0",
}
"""What a message says of each pattern."""
NAMES, HOSTS, ADDRESSES, TEXTS, DIGESTS, VERSIONS = PATTERNS

BOUNDS = {SECAGG_REQUIRED, SECAGG_MIN, *map(flag_of, Floors.model_fields)}
"""Keys of a node config that no run can loosen."""
Value = bool | int | float | str
Name = Annotated[str, Field(pattern=NAMES)]
Host = Annotated[str, Field(pattern=HOSTS, max_length=253)]
Address = Annotated[str, Field(pattern=ADDRESSES, max_length=259)]
Text = Annotated[str, Field(pattern=TEXTS, max_length=200)]
Digest = Annotated[str, Field(pattern=DIGESTS)]
Versions = dict[Name, Annotated[str, Field(pattern=VERSIONS)]]


class _Table(BaseModel):
    model_config = ConfigDict(
        alias_generator=flag_of, populate_by_name=True, extra="forbid", strict=True, allow_inf_nan=False
    )


def checked_bounds(bounds: dict[str, Value]) -> dict[str, Value]:
    """Return the bounds of a site.

    Raises
    ------
    UserError
        For another key, or a value that is not allowed.
    """
    for key, value in bounds.items():
        if key not in BOUNDS:
            raise unknown_name("bounds", key, BOUNDS)
        if isinstance(value, str) and not re.fullmatch(PLAIN_TEXT, value):
            raise not_allowed(key, value, PATTERNS[TEXTS])
    if type(bounds.get(SECAGG_REQUIRED, False)) is not bool:
        raise not_allowed(SECAGG_REQUIRED, bounds[SECAGG_REQUIRED], "true or false")
    least = bounds.get(SECAGG_MIN, LEAST_SUM)
    if type(least) is not int or least < LEAST_SUM:
        raise not_allowed(SECAGG_MIN, least, f"a whole number from {LEAST_SUM} on")
    Floors.of({**bounds, "state-dir": "state"})
    return bounds


Bounds = Annotated[dict[str, Value], AfterValidator(checked_bounds), Field(default_factory=dict)]


class Site(_Table):
    """A site: its number, whom to call, its key once it is admitted, and bounds of its own."""

    partition_id: int = Field(ge=0)
    contact: Text = ""
    key: str = ""
    fingerprint: str = ""
    node: str = Field("", pattern="^[0-9]*$")
    """Flower's number of its SuperNode, once its key is registered with the SuperLink."""
    bounds: Bounds

    @model_validator(mode="after")
    def _key_has_fingerprint(self) -> Site:
        if self.key and fingerprint(public_key(self.key)) != self.fingerprint:
            raise not_allowed("fingerprint", self.fingerprint, "that of the key beside it")
        return self


class Consortium(_Table):
    """The content of ``consortium.toml``."""

    name: Name
    server: Address
    """Where sites reach the SuperLink."""
    names: list[Host]
    """Under which it may be reached: those of its certificate."""
    control: Address = "127.0.0.1:8000"
    """Where it listens, and runs are started: never open to the world."""
    authority: str
    """The fingerprint of the authority's key."""
    serial: int = Field(0, ge=0)
    """Of the last list of admitted sites."""
    numbers: int = Field(0, ge=0)
    """Below which partition-ids were given to sites that have left: results that have one stay theirs."""
    versions: Versions
    bounds: Bounds
    """Of every site, beside its own."""
    sites: dict[Name, Site]
    studies: Annotated[dict[Name, Digest], Field(default_factory=dict)]

    @model_validator(mode="after")
    def _sites_differ(self) -> Consortium:
        for what in ("partition_id", "key"):
            seen: dict[Any, str] = {}
            for name, site in self.sites.items():
                value = getattr(site, what)
                if value != "" and (first := seen.setdefault(value, name)) != name:
                    raise not_allowed(f"sites.{name}.{flag_of(what)}", value, f"another than that of {first}")
        return self

    def check(self) -> None:
        """Refuse it as a whole, which changes one by one may make of it."""
        checked(Consortium, self.model_dump(by_alias=True), FILE)

    @property
    def admitted(self) -> dict[str, Site]:
        """The sites that have a key."""
        return {name: site for name, site in self.sites.items() if site.key}

    def site(self, name: str) -> Site:
        """Return a site.

        Raises
        ------
        UserError
            When there is none of that name.
        """
        if name not in self.sites:
            raise unknown_name("site", name, self.sites)
        return self.sites[name]


Checked = TypeVar("Checked", bound=BaseModel)


def checked(cls: type[Checked], values: Mapping[str, Any], where: str) -> Checked:
    """Return values as a model has them.

    Raises
    ------
    UserError
        In a line that names the key, the value and what is allowed.
    """
    try:
        return cls.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        *_, last = parts = ["", *map(str, first["loc"])]
        place = f"{where}: {'.'.join(parts[1:-2] if last == '[key]' else parts[1:])}".removesuffix(": ")
        said = first["msg"].removeprefix("Value error, ").removeprefix(f"{last}: ")
        if first["type"] == "string_pattern_mismatch":
            raise not_allowed(place, first["input"], PATTERNS[first["ctx"]["pattern"]]) from None
        ours = first["type"] in ("value_error", "missing")  # which have all of it
        given = "" if ours else f"{first['input']!r:.100} is not allowed; "
        raise UserError(f"{place}: {given}{said}") from None


def read(folder: Path) -> Consortium:
    """Return what the file of a consortium's folder says.

    Raises
    ------
    UserError
        When it cannot be read, or has what is not allowed.
    """
    return checked(Consortium, toml_of(folder / FILE), FILE)


def write(folder: Path, consortium: Consortium) -> None:
    """Write it, in the same order and form each time, so that two of them can be compared by lines."""
    consortium.check()
    values = consortium.model_dump(by_alias=True, exclude_defaults=True)
    write_atomically(folder / FILE, tomli_w.dumps(values))


def toml_of(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises
    ------
    UserError
        When it cannot be read.
    """
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))  # some editors begin it with a mark
    except (OSError, ValueError) as error:
        raise UserError(f"{path.name}: cannot read {str(path)!r} ({error})") from None


def safe_path(key: str, path: Path) -> Path:
    """Return a path in full, if every program reads it as it is.

    Raises
    ------
    UserError
        When it has spaces, quotes or other characters with a meaning.
    """
    full = path.expanduser().resolve()
    if not PATH.fullmatch(str(full)):
        raise not_allowed(key, str(full), "a path of letters, digits and . _ / + @ - alone")
    return full
