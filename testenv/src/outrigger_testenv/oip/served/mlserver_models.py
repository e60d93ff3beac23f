"""The models of the checks for MLServer: the name of a model says what it does."""

import asyncio
import time

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse, ResponseOutput

# Time that a run of the slow model takes, and longest load of the model that does not become
# ready, in seconds.
SLOW, NEVER = 0.7, 600.0


class Model(MLModel):
    """One model."""

    async def load(self):
        """Succeeds at once, but for one model."""
        if self.name == "never":
            await asyncio.sleep(NEVER)
        return True

    async def predict(self, payload):
        """Answers a request."""
        if self.name == "slow":
            time.sleep(SLOW)
        if self.name == "failing":
            raise RuntimeError("this model always fails")
        outputs = [self._pair, self._identity][self.name != "pair"](payload)
        return InferenceResponse(
            model_name=self.name, model_version=self.version, id=payload.id, outputs=outputs
        )

    def _identity(self, payload):
        tensor = payload.inputs[0]
        if self.name == "nonfinite":
            values = np.array([[np.nan, np.inf, -np.inf]], np.float32)
            return [NumpyCodec.encode_output("OUT_x", values)]
        return [
            ResponseOutput(
                name=f"OUT_{tensor.name}",
                shape=tensor.shape,
                datatype=tensor.datatype,
                parameters=tensor.parameters,
                data=tensor.data,
            )
        ]

    def _pair(self, payload):
        a, b = (NumpyCodec.decode_input(each) for each in payload.inputs[:2])
        made = {"sum": a + b, "difference": a - b}
        asked = [each.name for each in payload.outputs or []] or list(made)
        return [NumpyCodec.encode_output(name, made[name]) for name in asked if name in made]
