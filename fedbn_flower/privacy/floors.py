"""What a site's owner demands of every run, in the node config: a server can ask for more, never for less."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from ..core.errors import UserError, not_allowed, unknown_name
from ..core.ground.settings import flag_of, setting
from .private_run import AT_CLIENTS, NO_SEED, PrivateRun

if TYPE_CHECKING:
    from flwr.app import UserConfigValue

SECAGG = "secagg-"
SECAGG_REQUIRED, SECAGG_MIN = f"{SECAGG}required", f"{SECAGG}min"
SECAGG_KEY, SECAGG_PARTNERS = f"{SECAGG}key", f"{SECAGG}partners"
SECAGG_KEYS = (SECAGG_REQUIRED, SECAGG_MIN, SECAGG_KEY, SECAGG_PARTNERS)
LEAST_SUM = 2
"""Of how many clients a sum is at least."""
NOTIONS = ("client", "example", "local")


class Refused(UserError):
    """What a site does not do for a server; one line in its log, and the answer."""


class Floors(BaseModel):
    """The keys of a node config that no run can loosen.

    Parameters
    ----------
    dp_required : str
        The notions that a run may have, with commas; ``true`` for those that hold against the server.
    dp_max_epsilon, dp_max_delta : float
        The budget of this site's data over all runs.
    dp_min_noise, dp_max_clip : float
        Bounds on z and C of a run.
    dp_required_unit : str
        The column by whose values ``dp`` example has to protect rows together.
    """

    model_config = ConfigDict(alias_generator=flag_of, extra="forbid", frozen=True, allow_inf_nan=False)

    dp_required: bool | str = setting(False, description="true, or client, example or local, with commas")
    dp_max_epsilon: float = setting(0.0, gt=0, description="a number > 0")
    dp_max_delta: float = setting(0.0, gt=0, lt=1, description="a number in (0, 1)")
    dp_min_noise: float = setting(0.0, gt=0, description="a number > 0")
    dp_max_clip: float = setting(inf, gt=0, description="a number > 0")
    dp_required_unit: str = setting(
        "", min_length=1, coerce_numbers_to_str=True, description="the name of a column"
    )

    @classmethod
    def of(cls, node_config: Mapping[str, UserConfigValue]) -> Floors:
        """Read the keys that begin with ``dp-``.

        Raises
        ------
        UserError
            For an unknown one, a value that is not allowed, or a budget that cannot be held.
        """
        given = {key: value for key, value in node_config.items() if key.startswith("dp-")}
        known = {flag_of(name): field for name, field in cls.model_fields.items()}
        if unknown := sorted(given.keys() - known.keys()):
            raise unknown_name("node-config", unknown[0], known)
        try:
            floors = cls.model_validate(given)
        except ValidationError as error:
            key = str(error.errors()[0]["loc"][0])
            raise not_allowed(key, given[key], f"{known[key].description} in the node config") from None
        _ = floors.notions
        if floors.dp_max_epsilon and not floors.dp_max_delta:
            wanted = "a dp-max-delta beside it in the node config"
            raise not_allowed("dp-max-epsilon", floors.dp_max_epsilon, wanted)
        if floors.dp_max_epsilon and not node_config.get("state-dir"):
            wanted = "a state-dir beside it in the node config: a budget over all runs is kept there"
            raise not_allowed("dp-max-epsilon", floors.dp_max_epsilon, wanted)
        return floors

    @property
    def notions(self) -> frozenset[str]:
        """The notions that are allowed; empty for all, with none.

        Raises
        ------
        UserError
            For an unknown one.
        """
        at_site = AT_CLIENTS if self._bounds_at_site else frozenset()
        if str(self.dp_required).lower() in ("true", "false"):
            return AT_CLIENTS if str(self.dp_required).lower() == "true" else at_site
        named = frozenset(word.strip() for word in str(self.dp_required).split(","))
        if unknown := sorted(named - {*NOTIONS}):
            raise unknown_name("dp-required", unknown[0], NOTIONS, "true")
        if at_site and not named & at_site:
            raise not_allowed("dp-required", self.dp_required, f"{_either(at_site)} with dp-... bounds")
        return named & at_site if at_site else named

    @property
    def _bounds_at_site(self) -> bool:
        """Whether there is a bound that only a notion in which the site adds the noise can keep."""
        return bool(self.model_fields_set - {"dp_required"})

    @classmethod
    def checked(cls, node_config: Mapping[str, UserConfigValue], config: PrivateRun) -> Floors:
        """Return the bounds of a site that a run keeps, those of secure aggregation among them.

        Raises
        ------
        Refused
            When the node config has bounds that cannot be used, or the run asks for less. The server reads
            it: it has nothing of the data.
        """
        try:
            check_secagg(node_config, config)
            floors = cls.of(node_config)
        except UserError as mistake:
            raise Refused(str(mistake)) from None
        floors.check(config)
        return floors

    @property
    def any(self) -> bool:
        """Whether the owner demands anything."""
        return bool(self.notions)

    def check(self, config: PrivateRun) -> None:
        """Refuse a run that asks for less than the owner demands.

        Raises
        ------
        Refused
            Names the key, the run's value and the owner's bound.
        """
        if not self.any:
            return
        if config.dp not in self.notions:
            raise _refused("dp", config.dp, _either(self.notions))
        if config.dp not in AT_CLIENTS:
            return
        if config.dp == "example" and config.dp_unit != (unit := self.dp_required_unit or config.dp_unit):
            raise _refused("dp-unit", config.dp_unit, f"{unit!r} (dp-required-unit)")
        if config.dp_seed != NO_SEED:
            raise _refused("dp-seed", config.dp_seed, f"{NO_SEED}: a public key protects nobody")
        if self.dp_max_delta and config.dp_delta > self.dp_max_delta:
            raise _refused("dp-delta", config.dp_delta, f"at most {self.dp_max_delta:g} (dp-max-delta)")
        if config.clip and config.clip > self.dp_max_clip:
            raise _refused("dp-clip", config.clip, f"at most {self.dp_max_clip:g} (dp-max-clip)")

    def check_noise(self, noise: float) -> None:
        """Refuse noise below the owner's bound.

        Raises
        ------
        Refused
            See above.
        """
        if noise < self.dp_min_noise:
            raise _refused("dp-noise", noise, f"at least {self.dp_min_noise:g} (dp-min-noise)")


def check_secagg(node_config: Mapping[str, UserConfigValue], config: PrivateRun) -> None:
    """Refuse a run whose sums are not as secure as the owner of a site demands in the node config.

    Raises
    ------
    UserError
        For a key or a value of the node config that is not allowed; `Refused` for the run.
    """
    given = {key: value for key, value in node_config.items() if key.startswith(SECAGG)}
    if unknown := sorted(given.keys() - {*SECAGG_KEYS}):
        raise unknown_name("node-config", unknown[0], SECAGG_KEYS)
    required, least = given.get(SECAGG_REQUIRED, False), given.get(SECAGG_MIN, 0)
    if type(required) is not bool:
        raise not_allowed(SECAGG_REQUIRED, required, "true or false (in the node config)")
    if type(least) is not int or (SECAGG_MIN in given and least < LEAST_SUM):
        raise not_allowed(SECAGG_MIN, least, f"a whole number from {LEAST_SUM} on (in the node config)")
    for key, other, what in (
        (SECAGG_KEY, SECAGG_PARTNERS, "the file of a private key"),
        (SECAGG_PARTNERS, SECAGG_KEY, "a file or folder of public keys"),
    ):
        path = given.get(key, "")
        if key in given and not (isinstance(path, str) and path):
            raise not_allowed(key, path, f"{what} (in the node config)")
        if key in given and other not in given:
            raise not_allowed(key, path, f"a {other} beside it in the node config")
    demands = [key for key in SECAGG_KEYS if given.get(key)]
    if demands and config.secagg != "on":
        raise _refused("secagg", config.secagg, f"'on' ({demands[0]})")
    if config.secagg_min < least:
        raise _refused("secagg-min", config.secagg_min, f"at least {least} ({SECAGG_MIN} of its node config)")


def refuse_statistics(config: PrivateRun, what: str) -> None:
    """Refuse to tell statistics of a site's data, where these are protected from the server.

    Raises
    ------
    Refused
        With ``dp`` local or example, and with secure aggregation.
    """
    if config.secagg == "on":
        raise Refused(f"secagg: this site tells no {what} of its data, which is in sums alone")
    if config.against_server:
        raise Refused(f"privacy: with dp {config.dp!r} this site tells no {what} of its data")


def _refused(key: str, value: object, wanted: str) -> Refused:
    return Refused(f"{key}: {value!r} is not allowed at this site; expected {wanted}")


def _either(notions: frozenset[str]) -> str:
    return " or ".join(repr(name) for name in sorted(notions))
