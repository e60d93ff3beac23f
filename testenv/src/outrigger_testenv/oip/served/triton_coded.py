"""A model for Triton's Python backend whose code is in several modules: the sum of each row, times
their number.
"""

import numpy as np
import own.digits
import triton_python_backend_utils as pb


class TritonPythonModel:
    """One version of the model."""

    def initialize(self, args):
        """Imports what it needs."""
        self.numbers = own.digits.loaded()

    def execute(self, requests):
        """Answers the requests of a batch."""
        rows = [pb.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        scale = np.float32(own.digits.scale(self.numbers))
        scores = [scale * each.sum(axis=1, keepdims=True) for each in rows]
        return [pb.InferenceResponse([pb.Tensor("y", each)]) for each in scores]
