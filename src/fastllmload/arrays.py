"""Names of the array types that most functions take and give; shapes are stated where they are not (n,)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]  # NaN: no value
Numbers = npt.NDArray[np.int64]  # counts, row numbers, ns
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[Any]  # records with named fields, such as `Run.rows`
Values = npt.NDArray[Any]  # numbers of any type
