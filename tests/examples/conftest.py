"""Shared by the tests of the examples: nobody looks at what their runs draw or at their intervals."""

import pytest


@pytest.fixture(autouse=True)
def _only_what_is_computed(pictures_not_drawn, empty_figures, few_draws):
    """Tests of the notebooks, which are stored with their pictures, have processes of their own."""
