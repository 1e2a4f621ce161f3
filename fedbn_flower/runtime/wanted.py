"""What decides about workers."""

from typing import Protocol


class WantedWorkers(Protocol):
    """A run's configuration, as far as it asks for workers."""

    @property
    def backend(self) -> str:
        """Of auto, inline and ray."""

    @property
    def workers(self) -> int:
        """How many; 0 for one a core."""

    @property
    def verbose(self) -> bool:
        """Whether Ray's log lines are shown."""

    @property
    def ray_address(self) -> str:
        """``HOST:PORT`` of a running cluster, or empty."""

    @property
    def device(self) -> str:
        """Where clients compute."""
