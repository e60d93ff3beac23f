"""Outrigger's test environment.

`Stack` runs the real binaries, `ModelBuilder` makes model packages from TensorFlow functions and
`tree_package` from boosters of XGBoost, `pack` computes the tensors that the control plane will
send, and `Client` scores pandas DataFrames.
"""

from importlib import import_module

_HOME = {
    "Client": "client",
    "Input": "features",
    "Metadata": "features",
    "ModelBuilder": "builder",
    "ModelPackage": "builder",
    "OutriggerError": "errors",
    "Output": "features",
    "SLearner": "uplift",
    "Sparse": "sparse",
    "Stack": "stack",
    "TLearner": "uplift",
    "hashed": "features",
    "list_of": "features",
    "numeric": "features",
    "pack": "packing",
    "reference_model": "reference",
    "sparse_list": "features",
    "text": "features",
    "tree_package": "builder",
    "vector": "features",
    "vocabulary": "features",
    "weight_of": "features",
}

__all__ = list(_HOME)


def __getattr__(name: str):
    # Imported on first use: importing TensorFlow takes seconds, and a load generator does not need
    # it.
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
