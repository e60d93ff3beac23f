"""A black-box suite for an engine: TensorFlow Serving, or the local engine in its place.

Each row of the table is a documented behaviour of one of the four calls that the control plane
makes, with the expected answer and the one seen.
"""
