"""The log: its colours, a mistake in one line, and what several runs say."""

import io
import logging

import pytest
from flwr.common.logger import ConsoleHandler

from fedbn_flower.core import logs
from fedbn_flower.core.errors import UserError


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "no_colour", "coloured"),
    [(Terminal(), "", True), (Terminal(), "1", False), (io.StringIO(), "", False)],
)
def test_colours_are_for_terminals(stream, no_colour, coloured, monkeypatch):
    handler = ConsoleHandler(stream=stream)
    monkeypatch.setattr(logs.LOGGER, "handlers", [handler])
    monkeypatch.setenv("NO_COLOR", no_colour)
    logs.colour_in_terminals_only()
    handler.emit(logging.LogRecord("flwr", logging.WARNING, "", 0, "a line", None, None))
    assert "a line\n" in stream.getvalue()
    assert ("\x1b" in stream.getvalue()) == coloured


def test_a_mistake_at_a_site_is_one_line_of_its_log_and_a_defect_has_its_traceback(monkeypatch):
    """As Flower logs what an app raises."""
    stream = io.StringIO()
    monkeypatch.setattr(logs.LOGGER, "handlers", [logging.StreamHandler(stream)])
    monkeypatch.setattr(logs.LOGGER, "filters", [])
    logs.one_line_for_mistakes()
    for error in (UserError("data-path: '/srv' is not allowed; expected 10 classes"), KeyError("bug")):
        try:
            raise error
        except Exception as raised:
            logs.LOGGER.error("%s raised an exception", "ClientApp", exc_info=raised)
    first, *rest = stream.getvalue().splitlines()
    assert first == "ClientApp raised an exception: data-path: '/srv' is not allowed; expected 10 classes"
    assert rest[:2] == ["ClientApp raised an exception", "Traceback (most recent call last):"]
    assert rest[-1] == "KeyError: 'bug'"


def test_what_several_runs_warn_of_beforehand_is_shown_once_and_what_happens_each_time(caplog):
    for _ in range(2):
        with logs.notices_once():
            for seed in range(3):
                logs.notice("columns: ids? 'row'")
                logs.notice(f"seed {seed}")
                logs.LOGGER.warning("round 1: a client failed")
    of_a_job = [
        *("columns: ids? 'row'", "seed 0", "round 1: a client failed"),
        *("seed 1", "round 1: a client failed", "seed 2", "round 1: a client failed"),
    ]
    assert caplog.messages == of_a_job * 2
