"""Compare what sites with data of their own number by themselves, before the first round: classes and tokens.

A number means the same at all sites if the names are the same, in the same order.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid

from fedbn_flower.strategies import PseudoGradientStrategy, ReplyRefused
from fedbn_flower.strategies.messages.gate import printable, text_of
from fedbn_flower.strategies.messages.nodes import Everybody

from ..config.making import config_at_site
from ..config.run_config import RunConfig
from ..core.errors import RunFailed, UserError
from ..core.ground.wire import DIGESTS_OF_NAMES, NAMES, QUERY_NAMES
from ..core.text import quoted
from ..data.labels import same_word
from ..job.inputs import RunInputs
from ..site.inputs import inputs_at
from ..site.privacy import SitePrivacy, refusals_in_one_line
from .questions import answers_of_sites

LOGGER = logging.getLogger("flwr.fedbn")
CLASSES, TOKENS = "classes", "tokens"
LONGEST, MOST_SHOWN = 2**20, 10
"""Characters of a site's answer, and names in a message."""
Names = Mapping[str, Sequence[str]]
"""What is numbered, and its names in their order; or one digest of them, where names are not told."""


def names_of(inputs: RunInputs) -> Names:
    """Return what a site's data number by themselves; nothing of what has no names."""
    dataset = inputs.dataset
    vocabulary = dataset.kind.facts.get("vocabulary")
    found = {CLASSES: list(dataset.names_here), TOKENS: [vocabulary] if vocabulary else []}
    return {what: names for what, names in found.items() if names}


def digest_of(names: Names) -> str:
    """Return a digest of names, without regard to case and blanks; empty without names."""
    same = {what: [same_word(name) for name in several] for what, several in names.items()}
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest() if names else ""


@refusals_in_one_line
def answer_names(message: Message, context: Context) -> Message:
    """Tell the names of a site's classes: with ``dp`` or secure aggregation a digest of them."""
    config = config_at_site(context)
    SitePrivacy.of(config, context)
    names = names_of(inputs_at(config, context.node_config))
    for what, several in names.items():
        numbered = [f"{number} {name!r}" for number, name in enumerate(several)]
        LOGGER.info("%s here: %s", what, ", ".join(numbered))
    told = json.dumps(_told(config, names))
    return Message(RecordDict({NAMES: ConfigRecord({NAMES: told})}), reply_to=message)


def _told(config: RunConfig, names: Names) -> Names:
    if config.dp == "none" and config.secagg != "on":
        return names
    return {what: [digest_of({what: several})] for what, several in names.items()}


def check_names(inputs: RunInputs, strategy: PseudoGradientStrategy, grid: Grid) -> dict[str, str]:
    """Refuse sites that number other names, where the server knows classes by number.

    All that are connected are asked, also those that are held out of the rounds. Return the digests, for the
    messages, by which a site that connects later refuses: see `check_names_here`. Empty if nothing has names.

    Raises
    ------
    RunFailed
        Names two sites and both lists; also when no site's answer can be used.
    """
    if inputs.dataset.has_examples:
        return {}
    found = answers_of_sites(QUERY_NAMES, inputs, strategy, grid, _received, who=Everybody())
    digests = {}
    for what in (CLASSES, TOKENS):
        named = {site: names[what] for site, names in found.items() if what in names}
        for site, names in named.items():
            first = next(iter(named))
            if digest_of({what: names}) != digest_of({what: named[first]}):
                raise RunFailed(_differ(what, (first, site), (named[first], names)))
        if unnamed := [str(site) for site in found if named and site not in named]:
            have = f"the {what} have no names at site {', '.join(unnamed)}, and names at others"
            LOGGER.warning("%s, %s: nobody knows whether they are the same", have, _shown(named[first]))
        if named:
            digests[what] = digest_of({what: next(iter(named.values()))})
    return {DIGESTS_OF_NAMES: json.dumps(digests)} if digests else {}


def check_names_here(inputs: RunInputs, digests: str) -> None:
    """Refuse the names of a site that are not those of the run's first sites, which have these digests.

    Raises
    ------
    UserError
        When they differ: gives the site's own, or a digest where names are not told.
    """
    first = json.loads(digests)
    for what, names in _told(inputs.config, names_of(inputs)).items():
        if digest_of({what: names}) != first.get(what, digest_of({what: names})):
            told = "expected those of the sites that the run began with, in the same order"
            raise UserError(f"data-path: the {what} are {_shown(names)} here; {told}")


def _differ(what: str, sites: tuple[int, int], names: tuple[Sequence[str], Sequence[str]]) -> str:
    lists = " and ".join(f"at site {s} {_shown(n)}" for s, n in zip(sites, names, strict=True))
    told = "expected the same names in the same order, since each site numbers its own"
    return f"data-path: the {what} are {lists}; {told}"


def _shown(names: Sequence[str]) -> str:
    return quoted([printable(name) for name in names], MOST_SHOWN)


def _received(content: RecordDict) -> Names:
    try:
        names = json.loads(text_of(content, NAMES, NAMES, LONGEST))
    except (ValueError, RecursionError) as error:
        raise ReplyRefused(f"{NAMES}: no JSON ({type(error).__name__})") from None
    form = isinstance(names, dict) and all(isinstance(several, list) for several in names.values())
    if not (form and all(isinstance(name, str) for several in names.values() for name in several)):
        raise ReplyRefused(f"{NAMES}: no lists of names")
    return {str(what): several for what, several in names.items()}
