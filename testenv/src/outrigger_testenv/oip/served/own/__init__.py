"""The modules of a model, beside which those of a version are written."""
