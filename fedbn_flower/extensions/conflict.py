"""`Conflict`: what of a run's configuration an extension does not go with."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.errors import UserError, not_allowed


@dataclass(frozen=True)
class Conflict:
    """A key whose value does not go with an extension, and what is allowed in its place."""

    key: str
    value: object
    allowed: str

    @property
    def error(self) -> UserError:
        """The error that a run's caller gets."""
        return not_allowed(self.key, self.value, self.allowed)


@dataclass(frozen=True)
class Unused(Conflict):
    """A key that was given, and that nothing uses; ``allowed`` says when something would."""

    @property
    def error(self) -> UserError:
        return UserError(f"{self.key}: {self.value} is not used {self.allowed}")
