"""A model for Triton's Python backend: the sum of each row, times the number in scale.txt."""

from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    """One version of the model."""

    def initialize(self, args):
        """Reads the scale, which is beside this file."""
        directory = Path(args["model_repository"]) / args["model_version"]
        self.scale = np.float32((directory / "scale.txt").read_text())

    def execute(self, requests):
        """Answers the requests of a batch."""
        rows = [pb.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        scores = [self.scale * each.sum(axis=1, keepdims=True) for each in rows]
        return [pb.InferenceResponse([pb.Tensor("y", each)]) for each in scores]
