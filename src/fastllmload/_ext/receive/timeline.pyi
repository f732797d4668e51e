from typing import final

import numpy as np
import numpy.typing as npt

from fastllmload._ext.events.delta import Classifier
from fastllmload._ext.record.errortexts import ErrorTexts
from fastllmload._ext.record.recorder import Recorder

@final
class Timeline:
    """Where the events of a worker's responses go; the Protocol makes and uses it."""

    def __init__(
        self, recorder: Recorder, classifier: Classifier, error_texts: ErrorTexts, words: npt.NDArray[np.int64]
    ) -> None: ...
