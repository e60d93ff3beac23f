"""The figures of the Open Inference Protocol."""
