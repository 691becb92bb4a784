"""Addresses to listen at, ``[HOST:]PORT``."""

from __future__ import annotations

import pytest

from streamcal.page.addresses import parse_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("9100", "127.0.0.1", 9100),
        (":9100", "127.0.0.1", 9100),
        ("localhost:0", "localhost", 0),
        ("0.0.0.0:65535", "0.0.0.0", 65535),
        ("[::1]:9100", "::1", 9100),
        ("[::]:9100", "::", 9100),
        ("[fe80::1%lo]:9100", "fe80::1%lo", 9100),
        ("::1:9100", "::1", 9100),
    ],
)
def test_an_address(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize("text", ["", "x", "host:", "65536", "-1", "1e3", "٣", "9" * 5000, "host:99999999"])
def test_a_port_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="a port is a number from 0 to 65535, got "):
        parse_address(text)


@pytest.mark.parametrize("text", ["::1", "[::1]", "[x]:9100", "a:b:9100", "[127.0.0.1]:9100"])
def test_an_ipv6_address_needs_its_brackets(text: str) -> None:
    with pytest.raises(ValueError, match=r"with an IPv6 address in brackets, such as \[::1\]:9100"):
        parse_address(text)
