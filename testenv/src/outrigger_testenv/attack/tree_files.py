"""Packages of trees and of factorisation machines whose files lie, and the fault of each."""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrigger_testenv.attack import rows
from outrigger_testenv.attack.case import MIB
from outrigger_testenv.attack.pieces import File, repeated, whole

# Levels of a tree that are read.
_DEPTH = 4096
# Bytes of a file that is larger than the memory for packages.
_LARGE = 400 * MIB


@dataclass(frozen=True)
class Package:
    """A package; the text that its refusal has, or none if it is loaded."""

    # By path in the image.
    files: Mapping[str, File]
    fault: str | None


def trees(content: bytes | File, fault: str | None, name: str = "model.json") -> Package:
    """The package of the tree model in a file of this name."""
    return _package({"metadata.json": _METADATA, f"xgboost/{name}": content}, fault)


def machine(fault: str | None, **files: bytes | File) -> Package:
    """The package of a factorisation machine, with these files in place of good ones."""
    model = {"model": _encoded(rows.trees(rows.TREE)), "fm": _FM, "leaf_mapping": _MAPPING, **files}
    placed = {f"gbdt_fm/deploy.{name}": content for name, content in model.items()}
    return _package({"metadata.json": _MACHINE, **placed}, fault)


def _package(files: Mapping[str, bytes | File], fault: str | None) -> Package:
    placed = {
        f"data/{path}": whole(content) if isinstance(content, bytes) else content
        for path, content in files.items()
    }
    return Package(placed, fault)


def _encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


def _of_machine() -> dict[str, Any]:
    """metadata.json of a factorisation machine over the rows of the trees."""
    [of_trees] = rows.METADATA["inputs"]
    names = ("fm_features", "fm_features_weights", "fm_features_lengths")
    feature = {**of_trees["features"][0], "name": "words"}
    words = dict(zip(("tensor", "weights", "lengths"), names, strict=True))
    inputs = [of_trees, {**of_trees, **words, "features": [feature]}]
    score = {"tensor": "score", "name": "score", "kind": "per_treatment"}
    metadata = {**rows.METADATA, "framework": "gbdt_fm", "inputs": inputs, "outputs": [score]}
    del metadata["signature"]
    return metadata


_METADATA, _MACHINE = _encoded(rows.METADATA), _encoded(_of_machine())
_FM = b"bias 0.5\n1 0.1 0.2\n10 1 0.5\n11 -1 0.5\n"
_MAPPING = b"0 1:10 2:11\n"


def _tree(**changed: Any) -> bytes:
    return _encoded(rows.trees({**rows.TREE, **changed}))


def _chain(levels: int) -> bytes:
    """A tree whose right children have children, level after level."""
    count = 2 * levels + 1
    inner = [each % 2 == 0 and each < count - 1 for each in range(count)]
    return _encoded(
        rows.trees(
            {
                **rows.TREE,
                "tree_param": {**rows.TREE["tree_param"], "num_nodes": str(count)},
                "left_children": [at + 1 if each else -1 for at, each in enumerate(inner)],
                "right_children": [at + 2 if each else -1 for at, each in enumerate(inner)],
                "split_indices": [int(each) for each in inner],
                "split_conditions": [0.0] * count,
                "default_left": [0] * count,
                "split_type": [0] * count,
                "sum_hessian": [1] * count,
            }
        )
    )


def _ubjson(value: Any) -> bytes:
    """A value in UBJSON; bytes are a value that is encoded already."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        entries = (_ubjson(key)[1:] + _ubjson(each) for key, each in value.items())
        return b"{" + b"".join(entries) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b"".join(map(_ubjson, value)) + b"]"
    if isinstance(value, str):
        return b"SL" + struct.pack(">q", len(value)) + value.encode()
    return b"L" + struct.pack(">q", value) if isinstance(value, int) else _double(value)


def _double(value: float) -> bytes:
    return b"D" + struct.pack(">d", value)


# 2^60 float32 in no bytes, and a text of 2^62 bytes.
_NUMBERS = b"[$d#L" + struct.pack(">q", 2**60)
_TEXT = b"SL" + struct.pack(">q", 2**62)


def _in_ubjson(**changed: Any) -> bytes:
    return _ubjson(rows.trees({**rows.TREE, **changed}))


def _binary(nodes: int, count: int = 1) -> bytes:
    """A model in XGBoost's old binary format that ends where the nodes of its first tree begin."""
    learner = struct.pack("<fIiiiIII", 0.0, 2, 0, 0, 0, 1, 0, 1).ljust(136, b"\0")
    names = b"".join(struct.pack("<Q", len(name)) + name for name in (b"reg:linear", b"gbtree"))
    booster = struct.pack("<ii", count, 1).ljust(160, b"\0")
    tree = struct.pack("<iiiiii", 1, nodes, 0, 0, 2, 0).ljust(148, b"\0")
    return learner + names + booster + tree


def _large() -> File:
    """A model whose file is larger than the memory that packages may take."""
    first, last = _encoded(rows.trees(rows.TREE, unread=["#"])).split(b'"#"')
    return repeated(b"0,", _LARGE, first=first, last=b"0" + last)


_GOOD = _tree()

TREES: dict[str, Package] = {
    "good": trees(_GOOD, None),
    "good-ubjson": trees(_in_ubjson(), None, "model.ubj"),
    "large": trees(_large(), "server.memory"),
    "empty": trees(b"", "is empty"),
    "truncated": trees(_GOOD[:-20], "it ends too early"),
    "truncated-ubjson": trees(_in_ubjson()[:-20], "it ends too early", "model.ubj"),
    "cyclic": trees(_tree(left_children=[1, 0, -1], right_children=[2, 2, -1]), "two parents"),
    "child": trees(_tree(right_children=[2**31 - 1, -1, -1]), "no node"),
    "feature": trees(_tree(split_indices=[2**31 - 1, 0, 0]), "out of range"),
    "arrays": trees(_tree(split_conditions=[0.0]), "1 elements for 3 nodes"),
    "deep": trees(_chain(_DEPTH + 1), f"more than {_DEPTH} levels"),
    "nested": trees(b'{"a":' + b"[" * MIB, "it ends too early"),
    "numbers": trees(_in_ubjson(split_conditions=_NUMBERS), "it ends too early", "model.ubj"),
    "text": trees(_ubjson(rows.trees(_TEXT)), "it ends too early", "model.ubj"),
    "binary-nodes": trees(_binary(2**31 - 1), "longer than the file", "model.bin"),
    "binary-trees": trees(_binary(0, 2**31 - 1), "it ends too early", "model.bin"),
}

MACHINES: dict[str, Package] = {
    "good": machine(None),
    "bad-line": machine("in line 3", fm=b"bias 0.5\n1 0.1 0.2\n10 x 0.5\n"),
    "truncated": machine("in line 4", fm=_FM[:-5]),
    "factors": machine("in line 3", fm=b"bias 0.5\n1 0.1 0.2\n10 1 0.5 0.5\n"),
    "head": machine("FM file", fm=b"bias 1 2\n1 0.1 0.2\n"),
    "empty": machine("is empty", fm=b""),
    "infinite": machine("in line 2", fm=b"bias 0.5\n1 inf 0.2\n"),
    "large": machine("server.memory", fm=repeated(b"1 0.1 0.2\n", _LARGE, first=b"bias 0.5\n")),
    "mapping": machine("leaf mapping is invalid in line 1", leaf_mapping=b"0 1:10 2\n"),
    "mapping-tree": machine("there is no tree 9", leaf_mapping=b"9 1:10\n"),
    "mapping-number": machine("in line 1", leaf_mapping=b"0 1:" + b"9" * 100 + b"\n"),
    "trees": machine("two parents", model=_tree(left_children=[1, 0, -1])),
}
