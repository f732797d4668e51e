"""Each local port is used once per source address and target, so the busiest target limits the free ports."""

from types import SimpleNamespace

import numpy as np
import pytest

from fastllmload.certificate.usage import address_of, largest_target_share
from fastllmload.documents.read import convert
from fastllmload.documents.run import RunDocument
from fastllmload.records import layout


def run_of(urls, addresses, took, url):
    """Requests to *urls*[*url*] that *took* these nanoseconds."""
    rows = np.zeros(len(url), layout.REQUEST)
    rows["url"], rows["phase"] = url, layout.MEASURE
    rows["t_dispatch"] = 1_000
    rows["t_end"] = 1_000 + np.asarray(took)
    return SimpleNamespace(document=convert({"target": {"urls": urls, "addresses": addresses}}, RunDocument), rows=rows)


A, B = "http://a:8000/v1", "http://b:8000/v1"


def test_the_busiest_of_two_targets_is_the_one_whose_requests_take_longest():
    """Three of four requests go to A, and the one to B takes three quarters of the total duration."""
    assert largest_target_share(run_of([A, B], ["10.0.0.1", "10.0.0.2"], [10, 10, 10, 90], [0, 0, 0, 1])) == 0.75


def test_two_paths_of_one_server_share_its_ports():
    both = ["http://a:8000/v1", "http://a:8000/other"]
    assert largest_target_share(run_of(both, ["10.0.0.1"] * 2, [10, 10], [0, 1])) == 1.0


def test_unix_sockets_use_none():
    assert largest_target_share(run_of(["http://localhost"], ["/run/engine.sock"], [10], [0])) is None
    assert largest_target_share(run_of([A, "http://localhost"], ["10.0.0.1", "/run/s"], [30, 10], [0, 1])) == 0.75


def test_a_run_without_requests_or_targets_counts_as_one_target():
    assert largest_target_share(run_of([A, B], ["10.0.0.1", "10.0.0.2"], [], [])) == 1.0
    assert largest_target_share(SimpleNamespace(document=RunDocument(), rows=np.zeros(0, layout.REQUEST))) == 1.0


@pytest.mark.parametrize(
    ("url", "port"), [("http://a", 80), ("https://a/v1", 443), ("http://a:8000/v1", 8000), ("http://[::1]:9/v1", 9)]
)
def test_a_url_without_port_has_the_default_port_of_its_scheme(url, port):
    assert address_of(url, "10.0.0.1") == ("10.0.0.1", port)
