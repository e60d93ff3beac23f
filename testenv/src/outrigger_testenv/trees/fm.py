"""Writes the fixtures of crates/fm: a small model in each form, and its scores.

    python -m outrigger_testenv.trees.fm crates/fm/tests/fixtures

The scores are those of a reader in this file, which is written from the formulas and knows nothing
of the Rust one. `NAME.txt` has the scores of `NAME.fm` or `NAME.bin`; its format is that of
`outrigger_testenv.trees.worker`.
"""

import argparse
import json
import random
import struct
from pathlib import Path

import numpy as np

from outrigger_testenv.trees.worker import text

FEATURES = 6
"""Columns of the trees."""

LEAVES = [3, 4, 5, 6]
"""The leaves of each tree: those of a full tree with two levels of splits."""

TREES = 4

IDS = [0, 2, 5, 7, 4611336629522245135, 2**64 - 1, (1 << 32) + 2]
"""Features of the factorisation machine that are no leaves."""

NAMES = {"age_30": 5, "city:köln": 4611336629522245135}

LENIENT_LINES = ["", "9", "x 1 1 1", "8 1e99 1 1 1", "8 0.5", "2 9 9 9 9"]
"""Lines that XGBoost Serving skips: malformed, or with a feature that is there already."""

LENIENT_PAIRS = ["", "0", "x 3:5", "1 3:5:7 3 x:5 3:x 4:2", "9 3:5", "0 3:5"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fixtures", type=Path)
    directory = parser.parse_args().fixtures
    directory.mkdir(parents=True, exist_ok=True)
    draw = random.Random(7)
    (directory / "trees.json").write_text(json.dumps(trees(draw), indent=1) + "\n")
    (directory / "leaf_mapping").write_text("\n".join(mapping()) + "\n")
    lenient = mapping()[:2] + LENIENT_PAIRS + mapping()[2:]
    (directory / "lenient.leaf_mapping").write_text("\n".join(lenient) + "\n")
    names = [f"{name} {id}" for name, id in NAMES.items()]
    (directory / "names").write_text("\n".join(names) + "\n")
    (directory / "rows").write_text("\n".join(rows(draw)) + "\n")
    write_machines(directory, draw)
    for path in sorted([*directory.glob("*.fm"), *directory.glob("*.bin")]):
        tables = scores(directory, path)
        path.with_suffix(".txt").write_text("".join(text(*table) for table in tables))


def trees(draw: random.Random) -> dict:
    """A model as XGBoost writes it in JSON, with the keys that readers need."""
    each = []
    for at in range(TREES):
        splits = [draw.randrange(FEATURES) for _ in range(3)]
        thresholds = [draw.choice([-0.5, 0.0, 0.25, 1.0]) for _ in range(3)]
        tree = {
            "id": at,
            "tree_param": {"num_nodes": "7", "num_feature": "6", "size_leaf_vector": "1"},
            "left_children": [1, 3, 5, -1, -1, -1, -1],
            "right_children": [2, 4, 6, -1, -1, -1, -1],
            "split_indices": [*splits, 0, 0, 0, 0],
            "split_conditions": [*thresholds, 0.5, 1.0, 1.5, 2.0],
            "default_left": [draw.randrange(2) for _ in range(3)] + [0] * 4,
            "split_type": [0] * 7,
        }
        empty = ("categories", "categories_nodes", "categories_segments", "categories_sizes")
        each.append(tree | {key: [] for key in empty})
    parameters = {"num_trees": str(TREES), "num_parallel_tree": "1"}
    model = {
        "gbtree_model_param": parameters,
        "iteration_indptr": list(range(TREES + 1)),
        "tree_info": [0] * TREES,
        "trees": each,
    }
    learner = {
        "gradient_booster": {"name": "gbtree", "model": model},
        "learner_model_param": {"base_score": "5E-1", "num_class": "0", "num_feature": "6"},
        "objective": {"name": "binary:logistic"},
    }
    return {"version": [2, 1, 4], "learner": learner}


def leaf_id(tree: int, leaf: int) -> int:
    """The feature of a leaf. One is negative, which XGBoost Serving widens."""
    return -5 if (tree, leaf) == (0, 3) else 1000 + 10 * tree + leaf


def mapping() -> list[str]:
    lines = []
    for tree in range(TREES):
        # The last leaf of each tree is mapped to nothing.
        pairs = [f"{leaf}:{leaf_id(tree, leaf)}" for leaf in LEAVES[:-1]]
        lines.append(f"{tree} {' '.join(pairs)}")
    return lines


def rows(draw: random.Random) -> list[str]:
    """Lines `ID:WEIGHT .. | ID:WEIGHT ..`: for the trees and the machine, and for the latter."""
    special = [
        "|",
        "0:1 | 7:2",
        # Each of several weights counts in the machine, the last one in the trees.
        "2:-1 2:1 0:0.5 | 5:1 5:1",
        "2:1 1:-3 2:-1 1:nan |",
        # The trees see the feature 2, the machine another one.
        f"{(1 << 32) + 2}:-0.75 1:0 | 99:1",
        # Unknown to trees, machine and both.
        "7:1.5 1:-1 100:3 | 18446744073709551615:0.5",
        "1:nan 3:nan 4:-0 | 2:0",
    ]
    drawn = []
    for _ in range(14):
        part = lambda ids: " ".join(  # noqa: E731
            f"{id}:{round(draw.uniform(-2, 2), 3)}" for id in draw.sample(ids, draw.randrange(6))
        )
        drawn.append(f"{part([*range(9)])} | {part([*IDS, 12345])}")
    return special + drawn


def write_machines(directory: Path, draw: random.Random) -> None:
    # Nothing is known of the feature of one leaf.
    leaves = [leaf_id(tree, leaf) % 2**64 for tree in range(TREES) for leaf in LEAVES]
    ids = [*IDS, *(leaf for leaf in leaves if leaf != 1014)]

    def numbers(count: int) -> list[float]:
        # With the digits that alphaFM writes.
        return [float(f"{draw.gauss(0, 0.4):.6g}") for _ in range(count)]

    features = {id: numbers(1 + 3) for id in ids}
    features[7] = [0.0] * 4
    bias = -0.3125
    named = {id: name for name, id in NAMES.items()}
    lines = [f"bias {bias}", *(line(id, values) for id, values in features.items())]
    save(directory / "serving.fm", lines)
    save(directory / "lenient.fm", lines[:3] + LENIENT_LINES + lines[3:])
    lines = [f"bias {bias} 1.5 -2"]
    lines += [line(id, with_state(values)) for id, values in features.items()]
    save(directory / "alphafm.fm", lines)
    lines = lines[:1]
    lines += [line(named.get(id, id), with_state(values)) for id, values in features.items()]
    save(directory / "named.fm", lines)
    save(directory / "factors0.fm", [f"bias {bias}", *(line(id, numbers(1)) for id in ids)])
    save(directory / "factors9.fm", [f"bias {bias}", *(line(id, numbers(10)) for id in ids)])
    for name, kind in (("double", "d"), ("single", "f")):
        (directory / f"{name}.bin").write_bytes(binary(kind, bias, features))
    for name, factors in (("softmax", 5), ("softmax0", 0)):
        lines = [line("bias", [x for bias in numbers(3) for x in with_state([bias])])]
        for id in ids:
            classes = [with_state(numbers(1 + factors)) for _ in range(3)]
            lines.append(line(id, [x for each in classes for x in each]))
        save(directory / f"{name}.fm", lines)


def save(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n")


def line(name: object, values: list[float]) -> str:
    return " ".join([str(name), *(f"{value:g}" for value in values)])


def with_state(values: list[float]) -> list[float]:
    """A weight and a vector, and behind them the state of the trainer."""
    return [*values, *(float(at) for at in range(2 * len(values)))]


def binary(kind: str, bias: float, features: dict[int, list[float]]) -> bytes:
    """The binary form of alphaFM. `kind` is `d` for f64, `f` for f32."""
    factors, width = 3, struct.calcsize(kind)
    head = [1, width, factors, 1 + len(features), 1 + len(features), 1, 3 * width * (1 + factors)]
    content = struct.pack("<7Q", *head)
    unset = float("nan")
    for name, values in [("bias", [bias] + [unset] * factors), *features.items()]:
        encoded = str(name).encode()
        weight, vector = values[0], values[1:]
        numbers = [weight, 1.0, 2.0, *vector, *([3.0] * 2 * factors)]
        content += struct.pack("<H", len(encoded)) + encoded
        content += struct.pack(f"<{len(numbers)}{kind}", *numbers)
    return content


# The reader.


class Machine:
    """A factorisation machine: for each class a bias, and for each feature a weight and vector."""

    def __init__(self, path: Path, names: dict[str, int], softmax: bool):
        self.softmax = softmax
        self.features: dict[int, np.ndarray] = {}
        if path.suffix == ".bin":
            self._read_binary(path.read_bytes())
            return
        lines = [fields for fields in map(str.split, path.read_text().splitlines()) if fields]
        plain = len(lines[0]) == 2
        classes = (len(lines[0]) - 1) // 3 if self.softmax else 1
        self.bias = np.array(lines[0][1:], np.float32)[:: 1 if plain else 3][:classes]
        for name, *values in lines[1:]:
            id = names.get(name) or (int(name) if name.isdigit() else None)
            with np.errstate(over="ignore"):
                each = np.array(values, np.float64).astype(np.float32).reshape(classes, -1)
            each = each if plain else each[:, : each.shape[1] // 3]
            skipped = path.stem == "lenient" and (each.shape[1] < 4 or np.isinf(each).any())
            if id is not None and not skipped:
                self.features.setdefault(id, each)

    def _read_binary(self, content: bytes) -> None:
        _, width, factors, records, _, _, _ = struct.unpack_from("<7Q", content)
        at = 56
        for _ in range(records):
            (length,) = struct.unpack_from("<H", content, at)
            name = content[at + 2 : at + 2 + length].decode()
            at += 2 + length
            unit = np.frombuffer(content, f"<f{width}", 3 * (1 + factors), at).astype(np.float32)
            at += unit.size * width
            values = np.concatenate([unit[:1], unit[3 : 3 + factors]])
            if name == "bias":
                self.bias = values[:1]
            else:
                self.features[int(name)] = values[None]

    def known(self, features: list[tuple[int, float]]) -> list[tuple[np.ndarray, float]]:
        return [(self.features[id], x) for id, x in features if id in self.features]

    def margins(self, features: list[tuple[int, float]], kind: type) -> np.ndarray:
        """The margin of each class; sums are taken in numbers of type `kind`."""
        known = [(each.astype(kind), kind(x)) for each, x in self.known(features)]
        if not self.softmax and kind is np.float32:
            return np.array([self._with_norms(known)])
        return np.array([self._margin(known, kind, at) for at in range(len(self.bias))])

    def _with_norms(self, known) -> np.float32:
        """XGBoost Serving's sums for a binary model, all in f32 but the last."""
        linear = cross = np.float32(0)
        for each, x in known:
            norm = np.float32(0)
            for v in each[0, 1:]:
                norm += v * v
            linear += x * each[0, 0]
            cross -= x * x * norm
        for factor in range(1, known[0][0].shape[1] if known else 1):
            total = np.float32(0)
            for each, x in known:
                total += each[0, factor] * x
            cross += total * total
        return np.float32(float(linear) + (float(cross) * 0.5 + float(self.bias[0])))

    def _margin(self, known, kind: type, at: int):
        margin = kind(self.bias[at])
        for each, x in known:
            margin += each[at, 0] * x
        for factor in range(1, known[0][0].shape[1] if known else 1):
            total = squares = kind(0)
            for each, x in known:
                product = each[at, factor] * x
                total += product
                squares += product * product
            margin = kind(float(margin) + 0.5 * float(total * total - squares))
        return margin

    def values(self, margins: np.ndarray) -> np.ndarray:
        if not self.softmax:
            return 1 / (1 + np.exp(-margins.astype(np.float64)))
        exponentials = np.exp(margins.astype(np.float64) - margins.max())
        return exponentials / exponentials.sum()


def scores(directory: Path, path: Path):
    """The margins and values of a factorisation machine, with sums in f32 and in f64."""
    pairs = (each.split() for each in (directory / "names").read_text().splitlines())
    names = {name: int(id) for name, id in pairs}
    machine = Machine(path, names, softmax=path.stem.startswith("softmax"))
    model = json.loads((directory / "trees.json").read_text())
    mapped = mapped_leaves(directory / "leaf_mapping")
    inputs = []
    for each in (directory / "rows").read_text().splitlines():
        of_trees, of_machine = (pairs_of(part) for part in each.split("|"))
        leaves = [mapped.get(leaf) for leaf in enumerate(walk(model, of_trees))]
        leaves = [(id % 2**64, 1.0) for id in leaves if id is not None]
        inputs.append(of_machine + of_trees + leaves)
    for name, kind in (("single", np.float32), ("double", np.float64)):
        margins = [machine.margins(features, kind) for features in inputs]
        yield f"{name}-margin", np.array(margins)
        yield f"{name}-value", np.array([machine.values(each) for each in margins])


def mapped_leaves(path: Path) -> dict[tuple[int, int], int]:
    """The ids of leaves, by tree and number."""
    mapped = {}
    for each in path.read_text().splitlines():
        tree, *pairs = each.split()
        mapped |= {(int(tree), int(pair.split(":")[0])): int(pair.split(":")[1]) for pair in pairs}
    return mapped


def pairs_of(part: str) -> list[tuple[int, float]]:
    pairs = (pair.split(":") for pair in part.split())
    return [(int(id), float(np.float32(x))) for id, x in pairs]


def walk(model: dict, features: list[tuple[int, float]]) -> list[int]:
    """The leaf of each tree."""
    present = {id % 2**32: np.float32(x) for id, x in features if not np.isnan(x)}
    leaves = []
    for tree in model["learner"]["gradient_booster"]["model"]["trees"]:
        node = 0
        while tree["left_children"][node] != -1:
            feature = tree["split_indices"][node]
            if feature in present:
                left = present[feature] < np.float32(tree["split_conditions"][node])
            else:
                left = tree["default_left"][node]
            node = tree["left_children" if left else "right_children"][node]
        leaves.append(node)
    return leaves


if __name__ == "__main__":
    main()
