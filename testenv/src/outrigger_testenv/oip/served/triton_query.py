"""A model for Triton's Python backend that takes one query in a request.

Its values are the length of the query and both numbers.
"""

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    """One version of the model."""

    def execute(self, requests):
        """Answers the requests of a batch."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        query, id, version = (
            pb.get_input_tensor_by_name(request, name).as_numpy()
            for name in ("query", "id", "version")
        )
        values = [len(query[0]), id[0], version[0]]
        return pb.InferenceResponse([pb.Tensor("embedding", np.float32(values))])
