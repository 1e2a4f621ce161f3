"""What is looked at between a site and the SuperLink: name, proxy, port, TLS, validity, clock."""

import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import getproxies, proxy_bypass

from cryptography import x509

from .clock import answer, off
from .findings import Finding

WAIT = 10.0
"""Seconds."""
SOON = 14
"""Days before its end in which a certificate is to be renewed."""
WRONG_NAME, WRONG_ADDRESS, EXPIRED, NOT_YET = 62, 64, 10, 9
"""OpenSSL's numbers of what is wrong with a certificate."""


AT_SITE = "have TCP to it outward let through, and ask whether the SuperLink runs"
AT_OPERATOR = "start the SuperLink: superlink/install there, or fedbn-sim consortium superlink FOLDER"


def of_the_way(address: str, authority: Path, otherwise: str = AT_SITE) -> Iterator[Finding]:
    """Yield what was found on the way to a SuperLink at ``HOST:PORT``, until something bars it.

    ``otherwise`` says what to do where it is not reached; empty where it need not run yet.
    """
    host, _, port = address.rpartition(":")
    yield from of_proxies(host)
    found = of_name(host)
    yield found
    if found.remedy:
        return
    try:
        socket.create_connection((host, int(port)), timeout=WAIT).close()
    except OSError as error:
        told = f"{'' if otherwise else 'not yet reached: the SuperLink at '}{address}: {error}"
        yield Finding("port", told, otherwise)
        return
    yield Finding("port", f"{port} is reached")
    status, ahead = answer(address)
    remedy = "set it, and keep it by NTP: timedatectl set-ntp true" if (found_off := off(ahead)) else ""
    yield Finding("clock", f"{found_off or 'as'} the SuperLink's" if status else "not known", remedy)
    yield of_tls(host, int(port), authority)
    if status in (502, 504):
        yield Finding("SuperLink", f"a proxy answers {status} in its place: nothing is behind it", otherwise)


def of_name(host: str) -> Finding:
    """Look the name up."""
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except OSError as error:
        remedy = "ask your network's people for the name in DNS, or /etc/hosts"
        return Finding("name", f"{host}: {error}", remedy)
    return Finding("name", f"{host} is {', '.join(sorted(found))}")


def of_proxies(host: str) -> Iterator[Finding]:
    """Yield the proxy that programs here would take to a host."""
    found = {kind: re.sub(r"^(\w+://)?.*@", r"\1", url) for kind, url in getproxies().items()}  # no password
    proxy = found.get("https") or found.get("all")
    if proxy and not proxy_bypass(host):
        yield Finding("proxy", f"{proxy} is set for https", f"take it out for this host: no_proxy={host}")
    for kind in ("http", "https", "all"):
        if not re.match(r"https?://|(?!.*://)", url := found.get(kind, "")):
            yield Finding("proxy", f"{url} is set for {kind}", f"unset {kind}_proxy: Flower has no way by it")


def of_tls(host: str, port: int, authority: Path) -> Finding:
    """Shake hands as a SuperNode does: by this authority, under this name."""
    try:
        context = ssl.create_default_context(cafile=str(authority))
        with (
            socket.create_connection((host, port), timeout=WAIT) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            return _valid(x509.load_der_x509_certificate(secure.getpeercert(binary_form=True) or b""))
    except ssl.SSLCertVerificationError as error:
        return _not_verified(host, port, error)
    except (OSError, ValueError) as error:
        return Finding("TLS", f"{error}", "something that speaks no TLS answers there: is it the SuperLink?")


def _valid(certificate: x509.Certificate) -> Finding:
    end = certificate.not_valid_after_utc
    days = (end - datetime.now(UTC)).days
    renew = ": the operator should renew it (fedbn-sim consortium renew)" if days < SOON else ""
    return Finding("TLS", f"by this authority, under this name, until {end:%Y-%m-%d}{renew}")


def _not_verified(host: str, port: int, error: ssl.SSLCertVerificationError) -> Finding:
    certificate = _unchecked(host, port)
    if certificate is None:
        return Finding("TLS", f"{error.verify_message}", "try again, and ask the operator")
    if error.verify_code in (WRONG_NAME, WRONG_ADDRESS):
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        found = f"the certificate is of {', '.join(str(name.value) for name in names)}, not of {host}"
        return Finding("TLS", found, "consortium move --server with this name")
    if error.verify_code == EXPIRED:
        end = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
        return Finding("certificate", f"it was valid until {end}", "the operator: fedbn-sim consortium renew")
    if error.verify_code == NOT_YET:
        found = f"it is valid from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on"
        return Finding("certificate", found, "set this machine's clock: timedatectl set-ntp true")
    issuer = certificate.issuer.rfc4514_string()
    remedy = f"a proxy ends TLS on the way: have {host}:{port} let through unopened; or ask for another kit"
    return Finding("TLS", f"the certificate is by {issuer}, not by this authority", remedy)


def _unchecked(host: str, port: int) -> x509.Certificate | None:
    with suppress(OSError, ValueError):
        return x509.load_pem_x509_certificate(ssl.get_server_certificate((host, port), timeout=WAIT).encode())
    return None
