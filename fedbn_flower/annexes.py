"""The annexes: folders that nothing else imports. Take one away, and all the rest works.

What a user may never need is an annex. The core asks this table for what it brings, by kind and name, and
loads that when it is used; what is asked of a folder that is not there is a mistake that one line tells.

To add an annex, write its folder and enter it in `ANNEXES`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any

from .core.errors import UserError, not_allowed


@dataclass(frozen=True)
class Annex:
    """What a folder of this package brings.

    Parameters
    ----------
    gives : str
        What it is for, in words.
    brings : Mapping[str, Mapping[str, str]]
        By kind, such as ``commands``, each thing's place by its name: ``module:NAME``, of a module of the
        folder. Who asks for a kind says what its things are called with, and what they return.
    keys : tuple[str, ...]
        Keys of a run that ask for it by any value but their default.
    """

    gives: str
    brings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    keys: tuple[str, ...] = ()


ANNEXES: dict[str, Annex] = {
    "apps": Annex(
        "runs of any Flower app",
        {
            "commands": {"app": "command:app"},
            "runs": {"app": "reading:run_of_app"},
            "public": {"AppResult": "run_app:AppResult", "run_app": "run_app:run_app"},
        },
    ),
    "asynchronous": Annex(
        "asynchronous protocols",
        {"buffers": {"protocol": "extension:buffers_of"}, "extensions": {"protocol": "extension:Protocol"}},
        keys=("protocol", "concurrency", "mixing"),
    ),
    "attacks": Annex(
        "simulated attacks",
        {"extensions": {"attack": "extension:Attack"}, "examples": {"attack": "attackers:attacked"}},
        keys=("attack", "attackers"),
    ),
    "clinic": Annex(
        "readers of NIfTI and DICOM files",
        {
            "readers": {
                "decoder": "decoding:Scans",
                "series": "series:series_folders",
                "studies": "series:largest_of_studies",
                "patients": "series:patients_of",
            }
        },
        keys=("spacing", "window"),
    ),
    "consortium": Annex(
        "kits, checks and logs of sites",
        {
            "commands": {
                "consortium": "command:consortium",
                "doctor": "doctor:doctor",
                "new": "new_app:new",
                "audit": "log:audit",
            },
            "federations": {"consortium": "standing:standing"},
            "owners-doors": {"studies": "log:only_admitted", "audit": "log:logged"},
        },
    ),
    "estimate": Annex("estimates of how long runs take", {"estimates": {"dry-run": "runs:describe_runs"}}),
    "exports": Annex(
        "exports of models, figures and tables",
        {"commands": {"export": "command:export"}, "model-files": {"write": "model:write_model"}},
    ),
    "files": Annex(
        "readers of files and hub data sets",
        {"sources": {"files": "opening:open_named"}, "usual": {"files": "opening:usual_of_files"}},
    ),
    "inspection": Annex(
        "doubts about data and pages on them",
        {
            "checks": {"data": "warnings:warn_about_data"},
            "commands": {"inspect": "command:inspect"},
            "instead": {"inspect": "sites:inspect_sites"},
        },
        keys=("inspect",),
    ),
    "libraries": Annex("networks of other libraries", {"networks": {"of-library": "networks:of_library"}}),
    "lockstep": Annex(
        "ways to train clients at once",
        {
            "cohorts": {"lockstep": "cohorts:cohort_of"},
            "evaluations": {"lockstep": "cohorts:evaluate_of"},
        },
    ),
    "own_data": Annex(
        "readers of Datasets and of what functions return",
        {
            "datasets": {"pooled": "torch_datasets:pooled"},
            "functions": {"returned": "own_function:load_returned"},
        },
    ),
    "reference": Annex("pages of the docs"),
    "runtime.ray": Annex(
        "workers of Ray",
        {
            "grids": {"workers": "auto_grid:grid_on"},
            "workers": {"at-once": "background:start_ray", "once-they-pay": "background:BackgroundPool"},
        },
        keys=("ray-address", "workers"),
    ),
    "scanners": Annex(
        "simulated scanners", {"shifts": {"images": "shift:shift_images"}}, keys=("feature-shift",)
    ),
    "search": Annex(
        "searches of hyper-parameters",
        {
            "searches": {
                "search": "search:new_search",
                "resume": "search:resumed_search",
                "run": "run:run_search",
                "page": "page:search_page",
            }
        },
    ),
    "secagg": Annex(
        "masked sums",
        {"extensions": {"secagg": "extension:SecAgg"}, "accounts": {"secagg": "private:SummedPrivacy"}},
        keys=("secagg", "secagg-bits", "secagg-threshold", "secagg-min"),
    ),
    "study": Annex(
        "intervals, tests and the words of papers",
        {
            "at-a-site": {"recalibrate": "recalibration:recalibrated"},
            "at-the-end": {
                "intervals": "intervals:write_intervals",
                "subgroups": "subgroups:write_subgroups",
            },
            "commands": {"compare": "compare:compare", "release": "release:command"},
            "comparisons": {"of-two-runs": "compare:of_two"},
            "doubts": {"decisions": "decisions:doubts", "constant": "constant:doubts"},
            "sections": {
                "Segmentation by case": "segmentation_by_case:segmentation_by_case",
                "Predictions": "predictions:predictions",
                "Decisions by site": "decisions_by_site:decisions_by_site",
                "Subgroups": "subgroups:subgroups_section",
                "Recalibrated by site": "decisions_by_site:recalibration",
            },
            "tables": {"Segmentation by case": "segmentation_by_case:tables_by_case"},
            "texts": {"methods": "methods:methods", "model-card": "methods:model_card"},
            "verdicts": {"of-a-sweep": "sweeps:OfSweep"},
        },
        keys=("recalibrate", "subgroups"),
    ),
    "sweeps": Annex(
        "sweeps and experiment files",
        {
            "side-by-side": {"runs": "processes:side_by_side"},
            "sweeps": {
                "experiment": "experiment_files:experiment_of",
                "resume": "experiment_files:resumed_sweep",
                "runs": "sweep:runs_of",
                "folder": "sweep:sweep_folder",
                "run": "sweep:run_sweep",
            },
        },
    ),
    "trackers": Annex(
        "experiment trackers",
        {"observers": {"trackers": "chosen:trackers"}, "installed": {"trackers": "chosen:check_installed"}},
        keys=("track",),
    ),
    "warm": Annex("workers that stay at a site", {"doors": {"warm": "door:answered"}}),
    "watch": Annex(
        "the table and the page of runs",
        {"commands": {"runs": "command:runs", "watch": "command:watch"}},
    ),
}
"""Every annex by its folder, ``ROOM.NAME`` in a room; what several bring of a kind comes in this order."""


def is_present(name: str) -> bool:
    """Return whether an annex's folder is there."""
    spec = find_spec(f"{__package__}.{name}")
    return spec is not None and spec.origin is not None  # a folder of what Python compiled is no package


def asked_for(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """Return the annexes that values of a run's keys ask for; either mapping may lack keys."""
    return [
        name
        for name, annex in ANNEXES.items()
        if any(values.get(key) != defaults[key] for key in annex.keys if key in values and key in defaults)
    ]


def brought(kind: str, annexes: Collection[str] = tuple(ANNEXES)) -> dict[str, Any]:
    """Load and return all things of a kind, by name, of those of these annexes that are present."""
    return {
        name: resolve_name(f"{__package__}.{annex}.{place}")
        for annex, brings in _of_kind(kind).items()
        if annex in annexes and is_present(annex)
        for name, place in brings.items()
    }


def load(kind: str, name: str, what: str = "") -> Any:
    """Load and return one thing; the message names what it is for, or else the thing.

    Raises
    ------
    KeyError
        When no annex has one of that kind and name.
    UserError
        When its annex is not there.
    """
    annex = {name: annex for annex, brings in _of_kind(kind).items() for name in brings}[name]
    if not is_present(annex):
        raise UserError(f"{what or name}: {_missing(annex)}")
    return resolve_name(f"{__package__}.{annex}.{ANNEXES[annex].brings[kind][name]}")


def names_of(kind: str) -> list[str]:
    """Return the names of all things of a kind, whether or not their annexes are present."""
    return [name for brings in _of_kind(kind).values() for name in brings]


def check_keys(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuse values of a run's keys that need an annex that is not there.

    Parameters
    ----------
    values, defaults : Mapping[str, Any]
        Of the run's keys.

    Raises
    ------
    UserError
        For the first such key; the line names the annex.
    """
    for name, annex in ANNEXES.items():
        for key in annex.keys:
            if values[key] != defaults[key] and not is_present(name):
                raise not_allowed(key, values[key], f"{defaults[key]!r}: {_missing(name)}")


def _of_kind(kind: str) -> dict[str, Mapping[str, str]]:
    return {name: annex.brings[kind] for name, annex in ANNEXES.items() if kind in annex.brings}


def _missing(annex: str) -> str:
    return f"{ANNEXES[annex].gives} are in fedbn_flower/{annex.replace('.', '/')}, which is not there"
