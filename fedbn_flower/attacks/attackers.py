"""Who attacks in a run, which of their examples that changes, and on what a backdoor is tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbn_flower.clients import Examples, Prepare

from ..core.errors import not_allowed
from ..core.ground.columns import PATCHED, TRAIN
from ..core.process_cache import process_cache
from ..data.images.moments import top_of
from ..data.images.shift_spec import domain_of, seen_by
from ..extensions.annex_keys import OMNISCIENT
from ..job.inputs import RunInputs
from .examples import Patched, poisoned, to_be_patched
from .named import ON_DATA, NamedAttack, attackers_drawn, attacks_named

if TYPE_CHECKING:
    from ..server.federation import Federation


def attack_of(federation: Federation) -> Mapping[str, Any]:
    """Return what the extension `Attack` is made of.

    Raises
    ------
    UserError
        When the attack does not fit the data or the runtime, or the attackers the clients.
    """
    inputs, attacks = federation.inputs, attacks_named(federation.config.attack)
    if not federation.caller.simulates and any(attack.name not in ON_DATA for attack in attacks):
        wanted = f"one of {', '.join(ON_DATA)} under flwr run: others are of simulated clients (run_sim.py)"
        raise not_allowed("attack", inputs.config.attack, wanted)
    attackers = attackers_of(inputs)
    if not inputs.dataset.has_examples:
        wanted = f"'none' with dataset {inputs.config.dataset!r}: attackers are simulated, sites are not"
        raise not_allowed("attack", inputs.config.attack, wanted)
    for attack in attacks:
        _check_data(inputs, attack)
        _check_honest(inputs, attack, len(attackers))
    return {"attacks": attacks, "attackers": attackers, "patched": _trying(inputs, attackers)}


@process_cache(maxsize=16)
def attackers_of(inputs: RunInputs) -> frozenset[int]:
    """Return the partitions of a run's attackers; see `attackers_drawn`."""
    config = inputs.config
    training = sorted(set(range(config.num_clients)) - inputs.held_out_clients)
    return attackers_drawn(config.attackers, config.seed, training)


def attacked(
    inputs: RunInputs, partition_id: int, examples: Mapping[str, Examples]
) -> Mapping[str, Examples]:
    """Return a client's examples by split: poisoned ones if it attacks, and patched ones for a backdoor."""
    train, attacks = examples[TRAIN], attacks_named(inputs.config.attack)
    found = {**examples, **_patched_examples(inputs, partition_id, train.prepare)}
    attack = next((one for one in attacks if one.name in ON_DATA), None)
    if attack and partition_id in attackers_of(inputs):
        top = _white(inputs) if attack.name == "backdoor" else 0
        classes, seed = inputs.dataset.spec.outputs, inputs.config.seed
        columns, prepare = poisoned(attack, train.columns, train.prepare, classes, top, seed)
        found[TRAIN] = replace(train, columns=columns, prepare=prepare)
    return found


@process_cache(maxsize=16)
def _white(inputs: RunInputs) -> float:
    """Return the greatest intensity of a pixel: that of its type, or in the data where it is a fraction."""
    x = inputs.dataset.train.columns["x"]
    return float(x.max()) if x.dtype.kind == "f" else top_of(x)


def _patched_examples(inputs: RunInputs, partition_id: int, prepare: Prepare) -> dict[str, Examples]:
    """Return the patched test examples of a client, by the name of their split; none without a backdoor."""
    backdoor = _backdoor(inputs)
    if not backdoor:
        return {}
    domain = domain_of(inputs.config.feature_shift, partition_id)
    own = partition_id if inputs.evaluates_locally else None
    return {PATCHED: _patched(inputs, prepare, domain, own, backdoor.target)}


@process_cache(maxsize=16)
def _patched(
    inputs: RunInputs, prepare: Prepare, domain: int | None, partition_id: int | None, target: int
) -> Examples:
    """Return patched test examples: one object for all who prepare them alike, as evaluations are cached."""
    test = inputs.dataset.test
    shares = inputs.partitions
    rows = shares.test_rows if partition_id is None else shares.test[partition_id]
    kept = rows[to_be_patched(test.columns["y"][rows], target)]
    columns = seen_by(test.columns, inputs.config.feature_shift, domain)
    patch = Patched(prepare, target, _white(inputs))
    return Examples(columns, kept, patch, device=inputs.config.device)


def _trying(inputs: RunInputs, attackers: frozenset[int]) -> list[int]:
    """Return the honest clients that have patched test examples, if there is a backdoor."""
    backdoor = _backdoor(inputs)
    if not backdoor:
        return []
    shares, labels = inputs.partitions, inputs.dataset.test.columns["y"]
    honest = sorted(set(range(inputs.config.num_clients)) - inputs.held_out_clients - attackers)
    if not inputs.evaluates_locally:
        return honest
    return [i for i in honest if np.any(to_be_patched(labels[shares.test[i]], backdoor.target))]


def _backdoor(inputs: RunInputs) -> NamedAttack | None:
    attacks = attacks_named(inputs.config.attack)
    return next((one for one in attacks if one.name == "backdoor"), None)


def _check_honest(inputs: RunInputs, attack: NamedAttack, attackers: int) -> None:
    """Refuse an attack that follows from more honest answers than come beside an attacker's in any round."""
    config, least = inputs.config, OMNISCIENT.get(attack.name, 0)
    most = min(config.num_training - attackers, config.clients_a_round - 1)
    if most < least:
        wanted = (
            f"another one, or more clients: {attack.name} needs {least} or more honest answers in a round"
        )
        raise not_allowed("attack", config.attack, f"{wanted}, and beside an attacker's is room for {most}")


def _check_data(inputs: RunInputs, attack: NamedAttack) -> None:
    """Refuse an attack on labels where examples have no class, and a backdoor where there are no images."""
    if attack.name not in ON_DATA:
        return
    text, spec, problem = inputs.config.attack, inputs.dataset.spec, inputs.dataset.problem
    if spec.predicts != "classes" or problem.learns != "classes":
        why = f"another one: {attack.name} needs one class for each example, and these have {spec.predicts}"
        raise not_allowed("attack", text, why)
    if attack.name != "backdoor":
        return
    if len(spec.shape) < 3 or inputs.initial().spec.integers:
        raise not_allowed("attack", text, "another one: backdoor needs images, to which it adds a patch")
    if attack.target >= spec.outputs:
        raise not_allowed("attack", text, f"a class of backdoor from 0 to {spec.outputs - 1}")
