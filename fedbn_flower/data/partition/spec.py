"""Parse ``--partition``: how the training set is divided among clients."""

from dataclasses import dataclass
from typing import ClassVar

from ...core.errors import UserError, not_allowed
from ...core.text import PARTITION, hint
from .flwr_partitioners import NamedPartitioner

KINDS = {
    "iid": "",
    "dirichlet": "dirichlet:ALPHA with a number ALPHA > 0",
    "shards": "shards:PER_CLIENT with a whole number >= 1",
    "pathological": "pathological:CLASSES_PER_CLIENT with a whole number >= 1",
    "natural": "natural:COLUMN with the name of a column",
    "silos": "",
}
"""What each kind expects, if that is not plain from `PartitionSpec.FORMS`."""


@dataclass(frozen=True)
class PartitionSpec:
    """A parsed ``--partition``: its kind and that kind's one ``argument``.

    Examples, classes and ids that no client gets are noted when a run starts.

    - ``iid`` (no argument): shuffled rows in even parts.
    - ``dirichlet:ALPHA``: for each class, the clients' shares of its examples are drawn from Dir(alpha), as
      in Yurochkin et al. 2019 (1905.12022) and flwr-datasets' DirichletPartitioner. The balancing in that
      paper's code is left out, so sizes are uneven. It is drawn again, at most ten times, until each client
      has two examples. Hsu et al. 2019 (1909.06335) differ: they draw the class shares of each client, and
      all clients have one size.
    - ``shards:PER_CLIENT``: rows sorted by label, cut into nearly even shards, assigned at random (McMahan et
      al. 2017, section 3).
    - ``pathological:CLASSES_PER_CLIENT``: each client takes the classes with the fewest owners so far, ties
      at random. A class is divided evenly among its owners. All classes are used if there are enough owners.
    - ``natural:COLUMN``: a client for each id in a column of the dataset. With fewer clients than ids, the
      ids are drawn at random. Clients are in natural order of their ids: runs of digits count as numbers.
    - ``silos:0-4,5-9``: the classes of each client; a class of several clients is divided evenly among them.
    - ``silos`` (no argument): the classes that occur, in order, in one nearly even silo per client.
    - ``CLASSPartitioner:KEY=VALUE,...``: a class of `flwr_datasets.partitioner` and its arguments
      (`NamedPartitioner`).
    """

    FORMS: ClassVar[str] = PARTITION

    kind: str
    argument: float | int | str | tuple[frozenset[int], ...] | NamedPartitioner | None = None

    @classmethod
    def parse(cls, text: str) -> "PartitionSpec":
        """Parse one of `FORMS`.

        Raises
        ------
        UserError
            When the text has none of these forms.
        """
        kind, _, argument = text.partition(":")
        if kind[:1].isupper():
            return cls("partitioner", NamedPartitioner.parse(text))
        near = "" if kind in KINDS else hint(kind, KINDS)
        expected = KINDS.get(kind) or cls.FORMS
        bad = not_allowed("partition", text, expected, near)
        try:
            match kind:
                case "iid" | "silos" if not argument:
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

    @property
    def column(self) -> str:
        """The column that the partition divides by; empty if it uses none."""
        if isinstance(self.argument, NamedPartitioner):
            return self.argument.column
        return str(self.argument) if self.kind == "natural" else ""

    @property
    def needs_classes(self) -> bool:
        """Whether the partition divides by the class."""
        if isinstance(self.argument, NamedPartitioner):
            return self.argument.needs_classes
        return self.kind not in {"iid", "natural"}

    def check_classes(self, classes: int) -> None:
        """Refuse silos with classes that the dataset does not have.

        Raises
        ------
        UserError
            Names the largest such class.
        """
        if isinstance(self.argument, tuple) and (named := max(map(max, self.argument))) >= classes:
            expected = f"classes 0-{classes - 1}, as in the dataset, or another partition, such as iid"
            raise UserError(f"partition: class {named} in silos is not allowed; expected {expected}")

    def check_clients(self, num_clients: int) -> None:
        """Refuse a number of clients that differs from the number of silos.

        Raises
        ------
        UserError
            Names both numbers.
        """
        if isinstance(self.argument, tuple) and len(self.argument) != num_clients:
            raise not_allowed(
                "num-clients",
                num_clients,
                f"{len(self.argument)}, the number of silos in partition, or another partition, such as iid",
            )


def _silos(argument: str) -> tuple[frozenset[int], ...]:
    """Parse ``0-4,5-9`` to sets of classes; ``+`` joins classes within a silo, as in ``0-2+7,3-6``."""
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
