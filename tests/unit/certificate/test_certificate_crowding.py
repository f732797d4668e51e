"""Ports are used once per source address and place, so what is free is what is free at the fullest place."""

from types import SimpleNamespace

import numpy as np
import pytest

from fastllmload.certificate.port_usage import crowded_share, place_of
from fastllmload.records import layout


def run_of(urls, addresses, took, url):
    """Requests that *took* so many nanoseconds at the *url* of that number."""
    rows = np.zeros(len(url), layout.REQUEST)
    rows["url"], rows["phase"] = url, layout.MEASURE
    rows["t_dispatch"] = 1_000
    rows["t_end"] = 1_000 + np.asarray(took)
    return SimpleNamespace(manifest={"target": {"urls": urls, "addresses": addresses}}, rows=rows)


A, B = "http://a:8000/v1", "http://b:8000/v1"


def test_the_fullest_of_two_places_is_the_one_whose_requests_take_longest():
    """Three of four requests go to A, and the one at B holds its connection for three quarters of all time."""
    assert crowded_share(run_of([A, B], ["10.0.0.1", "10.0.0.2"], [10, 10, 10, 90], [0, 0, 0, 1])) == 0.75


def test_two_paths_of_one_server_share_its_ports():
    both = ["http://a:8000/v1", "http://a:8000/other"]
    assert crowded_share(run_of(both, ["10.0.0.1"] * 2, [10, 10], [0, 1])) == 1.0


def test_unix_sockets_use_none():
    assert crowded_share(run_of(["http://localhost"], ["/run/engine.sock"], [10], [0])) is None
    assert crowded_share(run_of([A, "http://localhost"], ["10.0.0.1", "/run/s"], [30, 10], [0, 1])) == 0.75


def test_a_run_without_requests_or_targets_counts_as_one_place():
    assert crowded_share(run_of([A, B], ["10.0.0.1", "10.0.0.2"], [], [])) == 1.0
    assert crowded_share(SimpleNamespace(manifest={}, rows=np.zeros(0, layout.REQUEST))) == 1.0


@pytest.mark.parametrize(
    ("url", "port"), [("http://a", 80), ("https://a/v1", 443), ("http://a:8000/v1", 8000), ("http://[::1]:9/v1", 9)]
)
def test_the_port_of_a_url_is_its_schemes_where_it_names_none(url, port):
    assert place_of(url, "10.0.0.1") == ("10.0.0.1", port)
