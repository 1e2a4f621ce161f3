"""A private run beside the same one without privacy: what two runs differ in."""

from dataclasses import replace
from pathlib import Path

from ...config.help import as_text
from ...core.errors import not_allowed
from ...core.ground.settings import flag_of
from ...extensions.privacy import NONE, PrivacyKeys
from ..manifest import NOT_KEYS
from ..run_reader import Run

IGNORED = {*NOT_KEYS, "run-dir", "resume", "cache-dir", "verbose", "seed"}
"""Entries of a manifest that are not compared: runs that differ only in these do the same work."""


def compared(run: Run) -> dict[str, str]:
    """Return what is compared of a run, as text."""
    values = {key: _text(value) for key, value in run.config.items() if key not in IGNORED}
    values |= {f"version of {k}": str(v) for k, v in (run.config.get("versions") or {}).items()}
    return values | {"data (digest)": str(run.config.get("data", ""))[:12]}


def _text(value: object) -> str:
    """Return a value as text, the same for 1 and 1.0."""
    return as_text(value).removesuffix(".0") if isinstance(value, float) else as_text(value)


def with_reference(run: Run, folder: Path) -> Run:
    """Return a private run with the one in a folder, which is the same but for its privacy.

    Raises
    ------
    UserError
        When the run is not private, or the other one differs in more.
    """
    if not run.summary.privacy:
        raise not_allowed("reference", str(folder), f"none: {str(run.folder)!r} is no complete run with dp")
    reference = Run.read(folder, "reference")
    here, there = ({**compared(one), "seed": _text(one.config.get("seed"))} for one in (run, reference))
    private = {"weighting", *map(flag_of, PrivacyKeys.model_fields)}
    for key in here.keys() | there.keys():
        first, other = here.get(key, ""), there.get(key, "")
        if first != other and key not in private and not key.startswith("version of "):
            raise not_allowed(
                "reference", str(folder), f"the same run without dp: its {key} is {other}, not {first}"
            )
    if there.get("dp", NONE) != NONE or not reference.summary.rounds:
        raise not_allowed("reference", str(folder), "a complete run without dp")
    return replace(run, without_noise=reference)
