"""What of a private run may be published: its model, its ledger, and a card that says what is guaranteed."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from math import exp
from pathlib import Path
from typing import Any

from .. import annexes
from ..cli.argument_parser import Parser
from ..core.errors import not_allowed, os_errors_as_user_errors
from ..core.files import write_atomically
from ..core.free_memory import regular
from ..core.stored import damage_as_user_errors
from ..names import short
from ..privacy import ledger
from ..privacy.accounts import Plan, epsilon, local_epsilon
from ..privacy.in_words import assumed, in_doubt, keeps_sample, not_held, protected
from ..privacy.terms import SUMMED, Terms
from ..results.run_directory import prepare_run_folder
from ..results.run_reader import Run

MODEL, CARD = "model.safetensors", "README.md"
FALSE_POSITIVE_RATES = (0.001, 0.01)
DELTAS = (*(10.0**-k for k in range(12, 0, -1)), 0.2, 0.3, 0.5)
"""At which a run's epsilon is found for the curve of attacks; any of them bounds it."""
SECRET_SAMPLE = " Who was asked in which round does not become known."

EpsilonAt = Callable[[float], float]


def release(folder: Path, to: Path) -> Path:
    """Write what may be published of a complete private run into a new folder; return its card.

    Raises
    ------
    UserError
        When the folder is not that of a complete run with ``dp``, or the other is not new or cannot be
        written.
    """
    run = Run.read(folder, "release")
    found = run.summary.privacy
    if not found:
        private = run.config.get("dp", "none") != "none"
        wanted = (
            "complete run with dp: it has no summary" if private else "run with dp: this one is not private"
        )
        raise not_allowed("release", str(folder), f"the folder of a {wanted}")
    if missing := [name for name in (MODEL, ledger.NAME) if not (folder / name).is_file()]:
        raise not_allowed(
            "release", str(folder), f"the folder of a complete run with dp: it has no {missing[0]}"
        )
    with damage_as_user_errors("release", folder):
        text = _card(run, found, _epsilon_at(folder, found))
    prepare_run_folder(to, "to")
    with os_errors_as_user_errors("to", f"write to {str(to)!r}"):
        for name in (MODEL, ledger.NAME):
            shutil.copyfile(folder / name, to / name)
        write_atomically(to / CARD, text)
    return to / CARD


def command(arguments: Sequence[str]) -> int:
    """Run ``release DIR --to DIR``: write what may be published of a private run into a new folder."""
    parser = Parser("fedbn-sim release", description="Write what may be published of a private run.")
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("--to", metavar="DIR", type=Path, required=True, help="new folder")
    options = parser.parse_args(arguments)
    print(release(options.folder, options.to))
    return 0


def attack_success(false_positives: float, epsilon_at: EpsilonAt) -> float:
    """Return a bound on an attack's true-positive rate at a false-positive rate.

    An (epsilon, delta) allows ``min(e^epsilon a + delta, 1 - e^-epsilon (1 - delta - a))`` at the rate a
    (Kairouz et al. 2015, 1311.0776). Each delta in `DELTAS` gives a bound, and the least one counts.
    """
    bounds = [1.0]
    for delta in DELTAS:
        found = min(epsilon_at(delta), 700.0)
        bounds += [exp(found) * false_positives + delta, 1 - exp(-found) * (1 - delta - false_positives)]
    return max(false_positives, min(bounds))


def _epsilon_at(folder: Path, found: Mapping[str, Any]) -> EpsilonAt:
    """Return epsilon of what was published, as a function of delta."""
    kept, *charges = map(json.loads, regular(folder / ledger.NAME).read_text().splitlines())
    noise = float(found["noise"])
    if found["notion"] == "client, central":
        terms = Terms.of(kept)
        return lambda delta: epsilon(terms.noise, replace(terms.plan, delta=delta), len(charges))
    if found["notion"] in ("client, local", SUMMED):
        asked = Counter(client for charge in charges for client in charge.get("clients", ()))
        rounds = max(asked.values(), default=0)
        if found["notion"] == SUMMED:
            return partial(annexes.load("accounts", "secagg").epsilon_of, found, rounds)
        return lambda delta: local_epsilon(noise, rounds, delta)
    plans = [
        (
            plan["probability"],
            plan["units" if "unit" in found else "examples"],
            plan["steps"] // found["planned-rounds"] * found["published"],
        )
        for plan in found["accounted"]
    ]
    return lambda delta: max(
        epsilon(noise, Plan("poisson", share, examples, steps, delta)) for share, examples, steps in plans
    )


def _card(run: Run, found: Mapping[str, Any], epsilon_at: EpsilonAt) -> str:
    config, (who, whom), said = run.config, protected(found), not_held(found)
    rates = (
        f"| {100 * rate:g} % | {100 * rate:g} % | {100 * attack_success(rate, epsilon_at):.3g} % |\n"
        for rate in FALSE_POSITIVE_RATES
    )
    versions = dict(config.get("versions") or {}) | {"dp-accounting": version("dp-accounting")}
    template = Path(__file__).with_name("release_card.md").read_text(encoding="utf-8")
    return template.format(
        **{key: found[key] for key in ("epsilon", "delta", "noise", "sampling", "published", "claim")},
        model=short(str(config.get("model", "model"))),
        rounds=run.summary.rounds,
        names=" ".join(short(str(config.get(key, ""))) for key in ("strategy", "client", "objective")),
        warned=f"**{said}**\n\n" if said else "",
        who=who,
        whom=whom,
        doubt=in_doubt(found),
        odds=exp(min(found["epsilon"], 700)),
        assumed=f"{assumed(found)}{SECRET_SAMPLE if keeps_sample(found) else ''}",
        rates="".join(rates),
        versions=", ".join(f"{name} {number}" for name, number in versions.items()),
    )
