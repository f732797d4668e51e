"""The checks, one module per subject; importing this package registers all of them."""

from fastllmload.compliance.checks import (
    classes,
    clocks,
    comparison,
    disclosure,
    documents,
    lengths,
    load,
    network,
    procedures,
    reports,
    stamps,
    streaming,
    tokens,
    warmup,
    workload,
)
from fastllmload.compliance.checks.registry import CHECKS

__all__ = [
    "CHECKS",
    "classes",
    "clocks",
    "comparison",
    "disclosure",
    "documents",
    "lengths",
    "load",
    "network",
    "procedures",
    "reports",
    "stamps",
    "streaming",
    "tokens",
    "warmup",
    "workload",
]
