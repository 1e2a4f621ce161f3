"""Compare this machine's clock with the SuperLink's. systemd runs it before the SuperNode of a site.

    python -m fedbn_flower.consortium.clock superlink.example.org:443

A SuperLink refuses every SuperNode whose clock is more than 5 s ahead of its own or 5 min behind it, and says
only that its authentication is invalid. Here it is one line on stderr, and exit status 1. A SuperLink that
does not answer is no matter of clocks: the SuperNode itself says so.
"""

import contextlib
import ssl
import sys
import time
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPSConnection

AHEAD, BEHIND = 5.0, 300.0
"""Seconds by which a SuperNode's clock may be wrong: Flower's own, which is at most 5 s more generous."""
WAIT = 10.0  # seconds


def answer(address: str) -> tuple[int, float]:
    """Return the status of an answer of ``HOST:PORT``, and by how many seconds at least this clock is ahead.

    The seconds are negative if it is behind; both are 0 if unknown. Only the ``Date`` of the answer is read.
    The certificate is not checked, since whether it is valid yet, or still, depends on the clock.
    """
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(OSError, HTTPException, TypeError, ValueError):
        connection = HTTPSConnection(address, timeout=WAIT, context=unchecked)
        before = time.time()
        connection.request("HEAD", "/v1/fleet/")  # which a proxy passes on
        response = connection.getresponse()
        there = parsedate_to_datetime(response.headers["Date"]).timestamp()
        # a Date has whole seconds
        return response.status, max(before - (there + 1), 0.0) + min(time.time() - there, 0.0)
    return 0, 0.0


def off(ahead: float) -> str:
    """Return by how much this clock is off, such as ``0 h 6 min 0 s behind``; empty if not."""
    if -BEHIND <= ahead <= AHEAD:
        return ""
    minutes, seconds = divmod(round(abs(ahead)), 60)
    return f"{minutes // 60} h {minutes % 60} min {seconds} s {'ahead of' if ahead > 0 else 'behind'}"


def main() -> int:
    """Check the clock; return the exit status."""
    if len(sys.argv) != 2:
        print("usage: python -m fedbn_flower.consortium.clock HOST:PORT", file=sys.stderr)
        return 2
    if not (found := off(answer(sys.argv[1])[1])):
        return 0
    told = f"error: this machine's clock is {found} that of {sys.argv[1]}, which refuses SuperNodes more than"
    remedy = "5 s ahead or 5 min behind: set it, and keep it by NTP (timedatectl set-ntp true)"
    print(told, remedy, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
