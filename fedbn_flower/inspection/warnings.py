"""Warn of a run's data before the first round."""

from collections.abc import Iterator

from ..config.named_algorithms import NOT_GIVEN
from ..data.labels import spelt_alike
from ..job.group_sides import sides_of, warn_about_groups_on_both
from ..job.inputs import RunInputs
from .copies import warn_about_contradictions, warn_about_copies, warn_about_same_clients
from .inputs import warn_about_columns, warn_about_float_pictures
from .leaks import warn_about_leaks
from .parts import Parts, warn_about_pairs, warn_about_parts, warn_about_scales, warn_about_test_set
from .targets import warn_about_labels, warn_about_targets


def warn_about_data(inputs: RunInputs) -> Iterator[str]:
    """Yield a line for each doubt about a run's data and their division, or about a site's data."""
    config, dataset = inputs.config, inputs.dataset
    shares = None if inputs.data_path else inputs.partitions.train
    yield from warn_about_leaks(dataset)
    if not config.normalize:
        yield from warn_about_float_pictures(dataset)
    yield from warn_about_columns(dataset, shares, config.missing_values)
    yield from warn_about_pairs(dataset)
    yield from warn_about_test_set(dataset)
    yield from warn_about_copies(dataset, inputs.partitions.test_rows if shares is not None else None)
    yield from warn_about_contradictions(dataset)
    if shares is not None:
        yield from warn_about_groups_on_both(inputs, sides_of(inputs))
        stated = config.predict != "auto" or "=" in config.label_column
        yield from warn_about_labels(dataset, stated, config.missing_values)
        yield from warn_about_same_clients(dataset)
        if same := spelt_alike(inputs.client_names or ()):
            shown = "; ".join(" and ".join(map(repr, several)) for several in same)
            yield (
                f"partition: sites? {shown} differ only in case or blanks; if they are one site, write one "
                "name: it is several clients, and left out it is trained on all the same"
            )
        parts = Parts.of_clients(shares, inputs.client_names)
        yield from warn_about_scales(dataset, parts)
        yield from warn_about_parts(dataset, parts)
        yield from warn_about_targets(dataset, shares, inferred=config.problem == NOT_GIVEN)
