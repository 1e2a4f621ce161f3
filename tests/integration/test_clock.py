"""A server whose clock is another: what a site is told, and when it is not."""

import re
import ssl
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("fedbn_flower.consortium")

from fedbn_flower.consortium import clock
from fedbn_flower.consortium.local import free_port

from .processes import ROOT


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with TLS by a certificate that nobody knows, and by how long its clock is ahead of ours."""
    folder = tmp_path_factory.mktemp("certificates")
    script = ROOT / "deploy" / "certificates.sh"
    subprocess.run(["bash", script, folder, "localhost"], check=True, capture_output=True)

    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response_only(403)
            if self.server.ahead is not None:
                self.send_header("Date", format_datetime(datetime.now(UTC) + self.server.ahead, usegmt=True))
            self.end_headers()

        def log_message(self, *_):
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as serving:
        serving.socket = context.wrap_socket(serving.socket, server_side=True)
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield serving
        serving.shutdown()


def told(address, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["clock", address])
    status = clock.main()
    return status, capsys.readouterr().err


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seconds", [-3 * 3600, -20, 360, 9000])
def test_a_clock_that_is_off_is_one_line(seconds, server, monkeypatch, capsys):
    """By how much it is off is known to two seconds."""
    server.ahead = timedelta(seconds=seconds)
    address = f"localhost:{server.server_port}"
    status, line = told(address, monkeypatch, capsys)
    assert status == 1
    assert line.count("\n") == 1
    found = re.match(
        r"error: this machine's clock is (\d+) h (\d+) min (\d+) s (ahead of|behind) that of ", line
    )
    hours, minutes, rest = map(int, found.groups()[:3])
    assert (found[4] == "behind") == (seconds > 0)
    assert 0 <= abs(seconds) - (3600 * hours + 60 * minutes + rest) <= 2
    assert address in line


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(minutes=4), timedelta(seconds=-4), None])
def test_a_clock_that_flower_takes_is_nothing_to_tell(ahead, server, monkeypatch, capsys):
    """None: the server does not say what its clock is."""
    server.ahead = ahead
    assert told(f"localhost:{server.server_port}", monkeypatch, capsys) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("address", ["", "no such host", "localhost:x"])
def test_a_server_that_does_not_answer_is_no_matter_of_clocks(address, monkeypatch, capsys):
    assert told(address or f"localhost:{free_port()}", monkeypatch, capsys) == (0, "")


@pytest.mark.slow
def test_flowers_own_bounds_are_as_wide():
    from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE

    assert clock.AHEAD <= SYSTEM_TIME_TOLERANCE
    assert clock.BEHIND <= TIMESTAMP_TOLERANCE
