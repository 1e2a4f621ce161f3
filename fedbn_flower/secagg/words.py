"""The names in messages of secure aggregation, beside those of `core.ground.wire`.

| where | holds |
|---|---|
| `SECAGG`, a ConfigRecord of a message of its own | a `STEP` of the exchange, and what it needs |
| the same of its answer | `KEYS`; `LETTERS`, `DIGEST`, `COMMITMENTS`; `SIGNATURE`, `STATEMENT`; or `SHARES` |
| `CONFIG` of train and evaluate messages | the vector's `Plan`, `BOTH`; the session's `TAG`, `PRESENT` |
| `COMPRESSED` of the answers | `VECTOR`: a client's integers, or a group's sum |
| `SECAGG`, an ArrayRecord of the answers | `KEYS`, `PUBLIC`, `PARTNERS` for the next sum, `HEARD` |
"""

SECAGG = "secagg"
STEP = "step"
ADVERTISE, SHARE, AGREE, UNMASK = "advertise", "share", "agree", "unmask"
"""The steps that have messages of their own; the other one is training or evaluation itself. `AGREE` is for
sites that have keys to sign with."""

UPCOMING = "secagg-upcoming"
"""A record beside that to `UNMASK`, and beside its answer: it begins the next session, as `SHARE` does."""

KEYS = "keys"  # two public keys of 32 bytes each: the mask's, and the letters'; advertised with a seal
SEALS = "seals"  # of neighbours' keys: see `signatures`
PARTNERS = "partners"  # the fingerprints of the keys that a site knows of others
PUBLIC = "public"  # the key that it signs with
TAG = "secagg-tag"  # which session it is: nobody answers twice in one
ME = "me"
NEIGHBOURS = "neighbours"
THRESHOLD = "threshold"
LEAST = "least"
LETTERS = "letters"
DIGEST = "digest"
COMMITMENTS = (
    "commitments"  # to each holder's shares of the seed and of the key; to a holder, to those it tells
)
BOTH = "secagg-both"  # the round in which the integers of an evaluation follow those of the training
PRESENT = "secagg-present"  # who has shared out its secrets, a bit each
SURVIVORS = "survivors"
GONE = "gone"
SHARES = "shares"
SIGNATURE = "signature"  # on who has answered
STATEMENT = "statement"  # what is signed
HEARD = "heard"  # the digest of what a client was told, which is in its masks
SIGNATURES = "signatures"  # those of the survivors, in their order
VECTOR = "vector"
