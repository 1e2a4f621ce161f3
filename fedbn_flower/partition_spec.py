"""How the training set is divided among clients, as the words of ``--partition``."""

from dataclasses import dataclass
from typing import ClassVar

from .errors import not_allowed


@dataclass(frozen=True)
class PartitionSpec:
    """A parsed ``--partition``: its kind and that kind's one argument.

    ``argument`` is the concentration alpha of ``dirichlet``, the shards per client of ``shards``, the
    classes per client of ``pathological``, the column of ``natural``, and the classes of each of the
    ``silos``; ``iid`` has none.
    """

    FORMS: ClassVar[str] = (
        "iid, dirichlet:ALPHA, shards:PER_CLIENT, pathological:CLASSES_PER_CLIENT, natural:COLUMN "
        "or silos:0-4,5-9"
    )

    kind: str
    argument: float | int | str | tuple[frozenset[int], ...] | None = None

    @classmethod
    def parse(cls, text: str) -> "PartitionSpec":
        """Parse one of `FORMS`.

        Raises
        ------
        UserError
            When it is none of them.
        """
        kind, _, argument = text.partition(":")
        bad = not_allowed("partition", text, cls.FORMS)
        try:
            match kind:
                case "iid" if not argument:
                    return cls(kind)
                case "dirichlet":
                    alpha = float(argument)
                    if 0 < alpha < float("inf"):
                        return cls(kind, alpha)
                case "shards" | "pathological":
                    if int(argument) > 0:
                        return cls(kind, int(argument))
                case "natural" if argument:
                    return cls(kind, argument)
                case "silos":
                    return cls(kind, _silos(argument))
        except ValueError:
            raise bad from None
        raise bad

    def check_clients(self, num_clients: int) -> None:
        """Refuse a number of clients that differs from the number of silos.

        Raises
        ------
        UserError
            With both numbers.
        """
        if isinstance(self.argument, tuple) and len(self.argument) != num_clients:
            raise not_allowed(
                "num-clients", num_clients, f"{len(self.argument)}, the number of silos in partition"
            )


def _silos(argument: str) -> tuple[frozenset[int], ...]:
    """``0-4,5-9`` as class sets; ``+`` joins classes within a silo: ``0-2+7,3-6``."""
    silos = []
    for silo in argument.split(","):
        classes: set[int] = set()
        for part in silo.split("+"):
            first, _, last = part.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            if not numbers:
                raise ValueError(f"empty range {part}")
            classes |= set(numbers)
        silos.append(frozenset(classes))
    return tuple(silos)
