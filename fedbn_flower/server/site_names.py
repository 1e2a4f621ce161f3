"""Compare what sites with data of their own number by themselves, before the first round: classes and tokens.

A number means the same at all sites if the names are the same, in the same order.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from flwr.app import RecordDict
from flwr.serverapp import Grid

from fedbn_flower.strategies import PseudoGradientStrategy, ReplyRefused
from fedbn_flower.strategies.messages.gate import text_of
from fedbn_flower.strategies.messages.nodes import Everybody

from ..core.errors import RunFailed
from ..core.ground.wire import DIGESTS_OF_NAMES, NAMES, QUERY_NAMES
from ..job.inputs import RunInputs
from ..job.site_facts import CLASSES, TOKENS, Names, digest_of, shown_names
from .questions import answers_of_sites

LOGGER = logging.getLogger("flwr.fedbn")
LONGEST = 2**20
"""Characters of a site's answer."""


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
            LOGGER.warning("%s, %s: nobody knows whether they are the same", have, shown_names(named[first]))
        if named:
            digests[what] = digest_of({what: next(iter(named.values()))})
    return {DIGESTS_OF_NAMES: json.dumps(digests)} if digests else {}


def _differ(what: str, sites: tuple[int, int], names: tuple[Sequence[str], Sequence[str]]) -> str:
    lists = " and ".join(f"at site {s} {shown_names(n)}" for s, n in zip(sites, names, strict=True))
    told = "expected the same names in the same order, since each site numbers its own"
    return f"data-path: the {what} are {lists}; {told}"


def _received(content: RecordDict) -> Names:
    try:
        names = json.loads(text_of(content, NAMES, NAMES, LONGEST))
    except (ValueError, RecursionError) as error:
        raise ReplyRefused(f"{NAMES}: no JSON ({type(error).__name__})") from None
    form = isinstance(names, dict) and all(isinstance(several, list) for several in names.values())
    if not (form and all(isinstance(name, str) for several in names.values() for name in several)):
        raise ReplyRefused(f"{NAMES}: no lists of names")
    return {str(what): several for what, several in names.items()}
