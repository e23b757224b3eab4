"""Which addresses are public, and which only look it."""

from __future__ import annotations

import pytest

from postroom.transports.http.public_ip import is_literal, is_public


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "93.184.215.14", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "172.32.0.1"],
)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "192.168.1.1"),
        *("169.254.169.254", "168.63.129.16", "100.64.0.1", "100.127.255.255"),
        *("0.0.0.0", "0.1.2.3", "255.255.255.255", "240.0.0.1", "224.0.0.1", "239.255.255.255"),
        *("192.0.0.8", "192.0.0.170", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "192.88.99.1"),
        *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "ff0e::1"),
        *("::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1", "::ffff:0:7f00:1"),
        *("64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1", "64:ff9b:1::808:808"),
        *("2002:7f00:1::", "2002:a9fe:a9fe::", "2002:808:808::", "2001:0:4136:e378:8000:63bf:80ff:fffe"),
        *("2001:db8::1", "3fff::1", "100::1", "5f00::1", "4000::1"),
        *("2130706433", "0x7f000001", "0177.0.0.1", "127.1", "127.0.0.1.", "", "localhost"),
    ],
)
def test_everything_else_is_not(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "2130706433", "0177.0.0.1", "127.0.0.1.", "::1", "fe80::1%lo"])
def test_a_host_that_no_resolver_may_see_is_a_literal(host: str) -> None:
    assert is_literal(host)


@pytest.mark.parametrize("host", ["localhost", "example.com", "1.example.com", "0x7f000001", "0x7f.1"])
def test_a_host_that_a_resolver_sees_is_none(host: str) -> None:
    assert not is_literal(host)
