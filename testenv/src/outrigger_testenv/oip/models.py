"""The models that a server has when it is checked: their names, inputs and outputs.

| model | what it does |
|---|---|
| `identity_fp32` and so on | the output `OUT_x` is the input `x`, of two dimensions |
| `rows` | the same for FP32 [rows, 2] |
| `pair` | `sum` and `difference` of `a` and `b`, which are FP32 [rows, 2]; runs are batched |
| `nonfinite` | the output is NaN, Infinity and -Infinity, whatever the input |
| `slow` | the identity of FP32 [rows, 2]; a run takes 0.7 s; few requests may wait |
| `failing` | each run fails |
| `never` | it does not become ready; a server of its own has it |
| `hesitant` | its first run fails, and later ones are the identity; Triton has it for figures |
| `places` | the identity; a run takes about 0.1 s in each of its instances, 16 requests may wait;
Triton has it for figures |
"""

from dataclasses import dataclass

IDENTITY = ("FP32", "INT8", "INT32", "INT64", "UINT64", "BOOL", "BYTES", "FP16", "BF16")
NEVER, HESITANT, PLACES = "never", "hesitant", "places"


@dataclass(frozen=True)
class Served:
    """A model with names and sizes as Triton's configuration has them. -1 is a variable size. With
    `max_batch_size` over 0, shapes have rows as their first dimension besides. `instances` of the
    model run at the same time on Triton.
    """

    name: str
    inputs: tuple[str, ...] = ("x",)
    outputs: tuple[str, ...] = ("OUT_x",)
    datatype: str = "FP32"
    dimensions: tuple[int, ...] = (-1, -1)
    max_batch_size: int = 0
    instances: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its tensors."""
        return (-1, *self.dimensions) if self.max_batch_size else self.dimensions


def identity(datatype: str) -> str:
    """The name of the identity model of a datatype."""
    return f"identity_{datatype.lower()}"


ALL = (
    *(Served(identity(datatype), datatype=datatype) for datatype in IDENTITY),
    Served("rows", dimensions=(-1, 2)),
    Served("pair", ("a", "b"), ("sum", "difference"), dimensions=(2,), max_batch_size=8),
    Served("nonfinite"),
    Served("slow", dimensions=(2,), max_batch_size=4),
    Served("failing"),
)
UNREADY = Served(NEVER)
