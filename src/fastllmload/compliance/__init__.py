"""How well a finished run or procedure followed the methodology: requirements, checks, declarations, verdict."""

from fastllmload.compliance.declarations import (
    Declaration,
    complaints,
    declarations,
    facts_of,
    missing,
    of_simulated_engine,
)

__all__ = ["Declaration", "complaints", "declarations", "facts_of", "missing", "of_simulated_engine"]
