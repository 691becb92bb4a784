"""Addresses to listen at, and the names by which clients may call this machine."""

from __future__ import annotations

import ipaddress
import socket


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``[HOST:]PORT``; an IPv6 address stands in brackets: ``[::1]:9100``.

    Raises
    ------
    ValueError
        if it has another form.
    """
    host, _, digits = text.rpartition(":")
    bare = _without_brackets(host)
    if ":" in bare or bare != host:
        try:
            ipaddress.IPv6Address(bare.partition("%")[0])
        except ValueError:
            raise ValueError(
                f"give [HOST:]PORT, with an IPv6 address in brackets, such as [::1]:9100; got {text!r}"
            ) from None
    if not (digits.isascii() and digits.isdigit() and int(digits[:6]) <= 65_535 and len(digits) <= 5):
        raise ValueError(f"a port is a number from 0 to 65535, got {digits!r} in {text!r}")
    return bare or "127.0.0.1", int(digits)


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """Return a socket that listens at an address of IPv4 or IPv6; port 0 takes a free one.

    Raises
    ------
    OSError
        if it cannot listen there.
    """
    family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server((host, port), family=family, backlog=backlog)


def http_url(host: str, port: int) -> str:
    """Return the URL of a server, without a path; an IPv6 address stands in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and reached from it alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def names_this_machine(header: str) -> bool:
    """Whether the header ``Host`` of a request holds an address, or localhost.

    Another site may let a name of its own lead to this machine, and have a page here read by that name.
    """
    host = header.rpartition(":")[0] if ":" in header and not header.endswith("]") else header
    try:
        return bool(ipaddress.ip_address(_without_brackets(host)))
    except ValueError:
        return host.lower() == "localhost"


def _without_brackets(host: str) -> str:
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host
