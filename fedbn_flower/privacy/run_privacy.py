"""What the privacy of a run has in common, whatever it protects: its ledger, and the columns of a round."""

from ..config.run_config import RunConfig
from ..records.columns import PRIVACY
from .ledger import Charge, Ledger

PUBLIC_KEY = "dp-seed: its key is public, so epsilon is simulated: nobody is protected by this run"


class RunPrivacy:
    """Base of the notions; a run begins with ``begin``.

    Parameters
    ----------
    config : RunConfig
        With ``dp``.
    """

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self._ledger: Ledger | None = None
        self._repeats = False

    def noise_std(self, charge: Charge) -> float:
        """Return the deviation of the noise in a round that was charged."""
        raise NotImplementedError

    def columns(self, server_round: int) -> dict[str, float]:
        """Return what ``metrics.csv`` has of a round that is done."""
        charge = self._ledger.last_of(server_round) if self._ledger else None
        assert charge
        return dict(zip(PRIVACY, (charge.epsilon, self.noise_std(charge), charge.clip), strict=True))

    def _is_repeated(self, server_round: int) -> bool:
        assert self._ledger
        return self._repeats and self._ledger.last_of(server_round) is not None
