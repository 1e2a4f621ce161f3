"""Warn of a run's data before the first round."""

from collections.abc import Iterator

from ..config.named_algorithms import NOT_GIVEN
from ..job.group_sides import sides_of, warn_about_groups_on_both
from ..job.inputs import RunInputs
from .copies import warn_about_copies, warn_about_same_clients
from .inputs import (
    warn_about_columns,
    warn_about_float_pictures,
    warn_about_site_units,
    warn_about_sites_without_values,
    warn_about_words_of_sites,
)
from .leaks import warn_about_leaks
from .targets import warn_about_labels, warn_about_targets


def warn_about_data(inputs: RunInputs) -> Iterator[str]:
    """Yield a line for each doubt about a run's data and their division, or about a site's data."""
    config, dataset = inputs.config, inputs.dataset
    shares = None if inputs.data_path else inputs.partitions.train
    yield from warn_about_leaks(dataset)
    if not config.normalize:
        yield from warn_about_float_pictures(dataset)
    yield from warn_about_columns(dataset, shares, config.missing_values)
    yield from warn_about_copies(dataset, inputs.partitions.test_rows if shares is not None else None)
    if shares is not None:
        yield from warn_about_groups_on_both(inputs, sides_of(inputs))
        yield from warn_about_labels(dataset, config.predict != "auto" or "=" in config.label_column)
        yield from warn_about_same_clients(dataset)
        yield from warn_about_site_units(dataset, shares, inputs.client_names)
        yield from warn_about_sites_without_values(dataset, shares, inputs.client_names)
        yield from warn_about_words_of_sites(dataset, shares, inputs.client_names)
        yield from warn_about_targets(dataset, shares, inferred=config.problem == NOT_GIVEN)
