"""How early the times of requests may have been: a stamp is exact, or the upper end of a bracket (`EventRow.bracket_ns`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastllmload._ext import regroup
from fastllmload.records.run import Run
from fastllmload.records.worker_files import as_bytes

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Earliest:
    """Per row of a run, in ns: the lower ends of `t_any`, `t_first` and `t_last`; 0 where that did not happen."""

    any: Times
    first: Times
    last: Times


def earliest(run: Run) -> Earliest:
    """Lower ends of the times of every row of *run*; where a stamp is exact it is the time itself."""
    found = np.zeros((len(run.rows), 3), np.int64)
    submitted = np.ascontiguousarray(run.rows["t_submit"])
    regroup.earliest(as_bytes(run.events), run.first_event, submitted, found)
    columns = np.ascontiguousarray(found.T)
    return Earliest(columns[0], columns[1], columns[2])
