"""What the figures of a search's page show."""

import pytest

from fedbn_flower.search.page import trial_values

pytestmark = pytest.mark.usefixtures("drawn_figures")


def test_a_searched_rate_has_readable_ticks():
    trials = [{"server-lr": str(rate), "value": "0.5"} for rate in (0.001, 0.0035, 0.02)]
    axes = trial_values(trials, "server-lr", "accuracy").axes[0]
    axes.figure.canvas.draw()
    low, high = axes.get_xlim()
    output = [text.get_text() for text in axes.get_xticklabels() if low <= text.get_position()[0] <= high]
    assert output == ["0.001", "0.002", "0.005", "0.01", "0.02"]


def test_a_searched_key_has_a_logarithmic_axis_where_it_spans_decades():
    trials = [{"state": "complete", "value": "0.5", "server-lr": "0.001", "tau": "1", "objective": "plain"}]
    trials += [{"state": "complete", "value": "0.4", "server-lr": "1", "tau": "2", "objective": "moon"}]
    trials += [{"state": "failed", "value": "", "server-lr": "1", "tau": "2", "objective": "moon"}]
    (axes,) = trial_values(trials, "server-lr", "value").axes
    assert axes.get_xscale() == "log"
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[0.001, 0.5], [1, 0.4]]]
    assert trial_values(trials, "tau", "value").axes[0].get_xscale() == "linear"
    assert trial_values(trials, "objective", "value").axes[0].lines[0].get_ydata().tolist() == [0.5, 0.4]
    assert trial_values(trials[2:], "tau", "value") is None
