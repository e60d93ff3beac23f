"""Two models for MLServer: one whose settings describe its output wrongly, and one that answers all
of its outputs, one of them without values, whatever was asked for.
"""

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceResponse


class Spam(MLModel):
    """Two probabilities for each text."""

    async def predict(self, payload):
        """Answers a request."""
        texts = StringCodec.decode_input(payload.inputs[0])
        spam = np.array([text.count("!") / 4 for text in texts])
        return _response(self, payload, predict=np.stack([1 - spam, spam], axis=1))


class Banner(MLModel):
    """34 scores for each row, and the places of none of them."""

    async def predict(self, payload):
        """Answers a request."""
        rows = NumpyCodec.decode_input(payload.inputs[0])
        scores = rows.sum(axis=1, keepdims=True) + np.arange(34, dtype=np.float32)
        none = np.zeros((len(rows), 0), np.int64)
        return _response(self, payload, SCORE=scores, PRED_IDX=none)


def _response(model, payload, **outputs):
    return InferenceResponse(
        model_name=model.name,
        model_version=model.version,
        id=payload.id,
        outputs=[NumpyCodec.encode_output(name, values) for name, values in outputs.items()],
    )
