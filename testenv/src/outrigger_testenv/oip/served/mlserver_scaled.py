"""A model for MLServer: the sum of each row, times the number in scale.txt."""

from pathlib import Path

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse
from mlserver.utils import get_model_uri


class Scaled(MLModel):
    """One version of the model."""

    async def load(self):
        """Reads the scale, which is beside the model's settings."""
        self.scale = np.float32(Path(await get_model_uri(self.settings)).read_text())
        return True

    async def predict(self, payload):
        """Answers a request."""
        rows = NumpyCodec.decode_input(payload.inputs[0]).astype(np.float32)
        scores = self.scale * rows.sum(axis=1, keepdims=True)
        outputs = [NumpyCodec.encode_output("y", scores)]
        return InferenceResponse(
            model_name=self.name, model_version=self.version, id=payload.id, outputs=outputs
        )
