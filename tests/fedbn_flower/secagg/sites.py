"""Sites asked by hand, as a server that lies would ask them, with keys of their own or without."""

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from fedbn_flower.secagg import site, words
from fedbn_flower.secagg.cryptography import LENGTH

from .keyed import signer_of

SITES, THRESHOLD, MOST = 5, 3, 6
VECTORS = np.arange(2 * MOST, dtype=np.uint32).reshape(MOST, 2)
PAIR = 2 * LENGTH


class Site:
    def __init__(self, me, config=None, number=1, of=SITES, threshold=THRESHOLD):
        self.me, self.state, self.of, self.threshold = me, RecordDict(), of, threshold
        self.least, self.signer = threshold, signer_of(config, number) if config else None
        self.advertise()

    def advertise(self):
        self.card = site.advertised(self.state, self.signer)[words.KEYS]

    def invitation(self, sites, **changes):
        others = [other for other in sites if other is not self]
        asked = {
            words.TAG: "one", words.ME: self.me, words.NEIGHBOURS: [other.me for other in others],
            words.KEYS: b"".join(other.card[:PAIR] for other in others), words.THRESHOLD: self.threshold,
            words.SEALS: [other.card[PAIR:] for other in others],
        }  # fmt: skip
        return ConfigRecord({**asked, **changes})

    def share(self, sites, **changes):
        found = site.shared_out(self.state, self.invitation(sites, **changes), self.least, self.signer)
        others = [other.me for other in sites if other is not self]
        self.letters = dict(zip(others, found[words.LETTERS], strict=True))
        self.digest = found[words.DIGEST]
        dealt = found[words.COMMITMENTS]  # each holder's to the seed, then to the key; its own are first
        self.dealt = {other: dealt[32 * i : 32 * (i + 1)] for i, other in enumerate([self.me, *others])}

    def mask(self, model=b"model", **changes):
        asked = ConfigRecord({words.TAG: "one", words.PRESENT: bytes([0xFF]), **changes})
        self.masked = site.masked(self.state, asked, VECTORS[self.me], lambda: model)

    def agree(self, gone):
        survivors = sorted(set(range(self.of)) - {self.me} - set(gone))
        asked = {words.TAG: "one", words.SURVIVORS: survivors, words.GONE: sorted(gone)}
        return site.agreed(self.state, ConfigRecord(asked), self.signer)[words.SIGNATURE]

    def help(self, sites, gone, signatures=None, /, **changes):
        survivors = sorted(set(range(self.of)) - {self.me} - set(gone))
        letters = [sites[other].letters[self.me] for other in (*survivors, *sorted(gone))]
        asked = {words.TAG: "one", words.SURVIVORS: survivors, words.GONE: sorted(gone)}
        asked[words.LETTERS] = letters
        dealt = [sites[other].dealt[self.me][:16] for other in survivors]
        asked[words.COMMITMENTS] = b"".join(
            [*dealt, *(sites[other].dealt[self.me][16:] for other in sorted(gone))]
        )
        if signatures:
            asked[words.SIGNATURES] = [signatures[other] for other in survivors]
        found = site.helped(self.state, ConfigRecord({**asked, **changes}), self.signer)
        return dict(zip(found[words.NEIGHBOURS], found[words.SHARES], strict=True))


def new_sites(configs=(None,) * SITES, threshold=THRESHOLD):
    """Sites that have advertised their keys."""
    return [Site(me, config, of=len(configs), threshold=threshold) for me, config in enumerate(configs)]


def shared_sites(*given, **how):
    """Those that have shared out their secrets, too."""
    sites = new_sites(*given, **how)
    for one in sites:
        one.share(sites)
    return sites


def masked_sites(configs=(None,) * SITES, models=(b"model",) * MOST, threshold=THRESHOLD):
    sites = shared_sites(configs, threshold)
    for one, model in zip(sites, models, strict=False):
        one.mask(model)
    return sites
