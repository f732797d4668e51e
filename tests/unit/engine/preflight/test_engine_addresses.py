"""URLs become addresses and request heads; headers that could inject another one are rejected."""

import base64

import pytest
from refusals import raises_code

from fastllmload.engine.preflight.addresses import addresses, parse_base, request_head, target_spec
from fastllmload.errors import InputError


@pytest.mark.parametrize(
    ("url", "host_header", "path", "tls"),
    [
        ("http://h", "h", "", False),
        ("http://h:80/v1/", "h", "/v1", False),
        ("https://h", "h", "", True),
        ("https://h:443", "h", "", True),
        ("http://h:443", "h:443", "", False),
        ("http://[::1]:8000/v1", "[::1]:8000", "/v1", False),
        ("h:9000", "h:9000", "", False),
        ("unix:/run/s.sock", "localhost", "", False),
    ],
)
def test_host_header_names_the_port_unless_it_is_the_default(url, host_header, path, tls):
    base = parse_base(url)
    assert (base.host_header, base.path, base.tls) == (host_header, path, tls)


@pytest.mark.parametrize("url", ["ftp://h", "http://", "http://h:99999", "http://[::1", "http:///v1"])
def test_an_invalid_url_is_rejected(url):
    with raises_code("url-invalid", "--url"):
        parse_base(url)


def test_user_and_password_become_basic_authorization_and_are_not_printed():
    base = parse_base("http://us%40er:pa%3Ass@h:1/v1")
    assert base.authorization == "Basic " + base64.b64encode(b"us@er:pa:ss").decode()
    assert base.public_url == "http://h:1/v1"


def test_every_address_of_a_name_is_kept_once_and_numeric():
    found = addresses(parse_base("http://localhost:81"))
    assert ("inet", "127.0.0.1", 81) in found and len(found) == len(set(found))
    assert addresses(parse_base("http://[::1]:82")) == [("inet6", "::1", 82)]
    assert addresses(parse_base("http://h", "/run/s.sock")) == [("unix", "/run/s.sock", 0)]


def test_a_name_that_cannot_be_resolved_is_a_target_error():
    with raises_code("host-unresolved", "'no-such-host.invalid'"):
        addresses(parse_base("http://no-such-host.invalid"))


def head(headers=(), key=None, url="http://h:1"):
    return request_head(parse_base(url), "/v1/x", headers, key).split("\r\n")


def test_a_head_has_each_header_once_and_the_users_value_wins():
    lines = head([("authorization", "Token t"), ("X-A", "1"), ("User-Agent", "me")], key="k")
    assert lines[0] == "POST /v1/x HTTP/1.1" and lines[-1] == ""
    assert "authorization: Token t" in lines and "User-Agent: me" in lines and "X-A: 1" in lines
    names = [line.split(":")[0].lower() for line in lines[1:-1]]
    assert len(names) == len(set(names))
    assert not {"content-length", "x-fastllmload-request", "connection"} & set(names)


def test_the_key_is_a_bearer_token():
    assert "Authorization: Bearer k" in head(key="k")
    assert "Authorization: Bearer k" in head(key="k", url="http://a:b@h")


@pytest.mark.parametrize(
    "header",
    [
        ("X-A", "1\r\nX-B: 2"),
        ("X A", "1"),
        ("", "1"),
        ("Content-Length", "3"),
        ("X-Fastllmload-Request", "1"),
        ("X-A", "\N{SNOWMAN}"),
    ],
)
def test_headers_that_break_the_head_are_rejected(header):
    with pytest.raises(InputError):
        head([header])


def test_a_targets_server_name_is_the_host_unless_given():
    base = parse_base("https://h.example/v1")
    assert target_spec(base, ("inet", "192.0.2.1", 443), "/p", (), None, None).server_name == "h.example"
    assert target_spec(base, ("inet", "192.0.2.1", 443), "/p", (), None, "other").server_name == "other"
