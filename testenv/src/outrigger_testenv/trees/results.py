"""The text files of results that stand beside the models of fixtures."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np


def write(path: Path, tables: Iterable[tuple[str, np.ndarray]]) -> None:
    """Writes tables with their names: after a line `NAME ROWS COLUMNS` come as many lines of
    numbers, which are exact in the table's type.
    """
    path.write_text("".join(_table(name, values) for name, values in tables))


def _table(name: str, values: np.ndarray) -> str:
    lines = [f"{name} {values.shape[0]} {values.shape[1]}"]
    lines += [" ".join(_number(value) for value in row) for row in values]
    return "\n".join(lines) + "\n"


def _number(value: np.floating) -> str:
    """The shortest text that is this number."""
    return str(value).removesuffix(".0")
