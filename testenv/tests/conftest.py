"""Quiet TensorFlow, pinned threads, and the fixtures that every stage shares."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
