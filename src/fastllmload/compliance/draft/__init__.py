"""The statements of the draft that decide a verdict, in its order, each with the check that judges it."""

from __future__ import annotations

from fastllmload.compliance.draft.comparison import STATEMENTS as COMPARISON
from fastllmload.compliance.draft.method import STATEMENTS as METHOD
from fastllmload.compliance.draft.tests import STATEMENTS as TESTS

STATEMENTS = (*METHOD, *TESTS, *COMPARISON)
