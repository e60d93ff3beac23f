"""A model for MLServer with code in several modules: the sum of each row, times their number."""

import numpy as np
import own.digits
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Coded(MLModel):
    """One version of the model."""

    async def load(self):
        """Imports what it needs."""
        self.numbers = own.digits.loaded()
        return True

    async def predict(self, payload):
        """Answers a request."""
        rows = NumpyCodec.decode_input(payload.inputs[0]).astype(np.float32)
        scores = np.float32(own.digits.scale(self.numbers)) * rows.sum(axis=1, keepdims=True)
        outputs = [NumpyCodec.encode_output("y", scores)]
        return InferenceResponse(
            model_name=self.name, model_version=self.version, id=payload.id, outputs=outputs
        )
