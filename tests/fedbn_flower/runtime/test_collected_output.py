"""What is printed and logged while it is collected, and where it goes afterwards."""

import io
import logging
import subprocess
import sys

from fedbn_flower.runtime.collected_output import Collected, collected_output, logs_to


def test_prints_and_logs_are_collected_and_afterwards_not(capsys):
    stream = Collected()
    with collected_output(stream):
        print("one")
        print("two", file=sys.stderr)
        logging.getLogger("flwr").warning("three")
    print("four")
    text = stream.taken()
    assert text.startswith("one\ntwo\n")
    assert "three" in text
    assert "four" not in text
    assert stream.taken() == ""
    assert capsys.readouterr().out == "four\n"


def test_an_app_has_a_console_in_every_call_and_its_handlers_keep_it(capfd):
    """A handler that one call makes logs in the next ones too; other programs print as they do elsewhere."""
    logger, stream = logging.getLogger("an app's own"), Collected()
    with collected_output(stream):
        sys.stdout.reconfigure(line_buffering=True)
        sys.stdout.buffer.write("é".encode())
        print("|", sys.stdout.encoding, end="|")
        subprocess.run([sys.executable, "-c", "print('of a program')"], stdout=sys.stdout, check=True)
        logger.addHandler(logging.StreamHandler())
    with collected_output(stream):
        logger.warning("later")
    assert stream.taken() == "é| utf-8|later\n"
    assert capfd.readouterr().out == "of a program\n"
    logger.handlers.clear()


def test_handlers_get_their_streams_back():
    mine, other, text = io.StringIO(), io.StringIO(), io.StringIO()
    logger = logging.getLogger("of a test")
    for stream in (mine, other):
        logger.addHandler(logging.StreamHandler(stream))
    with logs_to(text, of=(mine,)):
        logger.warning("a")
    logger.warning("b")
    assert (text.getvalue(), mine.getvalue(), other.getvalue()) == ("a\n", "b\n", "a\nb\n")
    logger.handlers.clear()
