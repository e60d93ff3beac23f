"""The models of the checks for Triton's Python backend: the name of a model says what it does."""

import random
import time

import numpy as np
import triton_python_backend_utils as pb

# Time that a run of the slow model takes, and longest load of the model that does not become
# ready, in seconds.
SLOW, NEVER = 0.7, 600.0
# Time that a run of the model with places takes, in seconds, and the share by which it varies.
PLACE, JITTER = 0.1, 0.1


class TritonPythonModel:
    """One model."""

    def initialize(self, args):
        """Remembers the name."""
        self.name = args["model_name"]
        self.is_new = True
        if self.name == "never":
            time.sleep(NEVER)

    def execute(self, requests):
        """Answers the requests of a batch."""
        if self.name == "slow":
            time.sleep(SLOW)
        if self.name == "places":
            time.sleep(PLACE * (1 + JITTER * random.uniform(-1, 1)))
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        was_new, self.is_new = self.is_new, False
        if self.name == "hesitant" and was_new:
            return pb.InferenceResponse(error=pb.TritonError("this model fails once"))
        if self.name == "failing":
            return pb.InferenceResponse(error=pb.TritonError("this model always fails"))
        if self.name == "pair":
            a, b = (pb.get_input_tensor_by_name(request, each).as_numpy() for each in "ab")
            outputs = [pb.Tensor("sum", a + b), pb.Tensor("difference", a - b)]
            asked = set(request.requested_output_names())
            return pb.InferenceResponse([each for each in outputs if each.name() in asked])
        x = pb.get_input_tensor_by_name(request, "x")
        if self.name == "identity_bf16":
            return pb.InferenceResponse([pb.Tensor.from_dlpack("OUT_x", x.to_dlpack())])
        values = x.as_numpy()
        if self.name == "nonfinite":
            values = np.array([[np.nan, np.inf, -np.inf]], np.float32)
        return pb.InferenceResponse([pb.Tensor("OUT_x", values)])
