"""metadata.json as dataclasses: a model's features and the tensors they go into.

The names are those of the file (docs/model-package.md). Values left at their default are omitted
from the file.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

SCHEMA = "outrigger.dev/model/v1"

USER = "user"
TREATMENT = "treatment"
TREATMENT_COUNT = "treatment_count"
SEED = "seed"
JOINED = "joined"

PER_TREATMENT = "per_treatment"
SINGLE = "single"


@dataclass(frozen=True)
class Feature:
    """A feature, and the meaning of its absence: a default, an error, or NaN.

    A feature of a joined input has an entity; that of any other is its input's.
    """

    name: str
    default: Any = None
    required: bool = False
    missing: str | None = None
    length: int | None = None
    max: int | None = None
    id: int | None = None
    padding: Any = None
    vocabulary: tuple[str, ...] | tuple[int, ...] | dict[str, int] | None = None
    out_of_vocabulary: int | None = None
    hash_buckets: int | None = None
    allow_non_finite: bool = False
    entity: str | None = None

    @property
    def width(self) -> int:
        """The number of elements it takes in the last dimension of its tensor; of a list, the
        largest number.
        """
        return self.length or self.max or 1

    def to_json(self) -> dict[str, Any]:
        """The entry in `inputs[].features`."""
        given = (each for each in fields(self) if getattr(self, each.name) != each.default)
        entry = {each.name: getattr(self, each.name) for each in given}
        if isinstance(self.vocabulary, tuple):
            entry["vocabulary"] = list(self.vocabulary)
        return entry

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> "Feature":
        """Reads an entry of `inputs[].features`."""
        entry = dict(entry)
        if isinstance(entry.get("vocabulary"), list):
            entry["vocabulary"] = tuple(entry["vocabulary"])
        return cls(**entry)


def numeric(name: str, **absence: Any) -> Feature:
    """A number: `numeric("recency", default=6)`, `required=True` or `missing="nan"`."""
    return Feature(name, **absence)


def vector(name: str, length: int, **absence: Any) -> Feature:
    """A vector of `length` numbers."""
    return Feature(name, length=length, **absence)


def list_of(name: str, most: int, *, padding: Any = None, **rest: Any) -> Feature:
    """A list of up to `most` values; a shorter one is padded, unless its input has `lengths`."""
    return Feature(name, max=most, padding=padding, **rest)


def sparse_list(name: str, most: int, **rest: Any) -> Feature:
    """Up to `most` ids with weights, in an input with `weights`. A `vocabulary` has names for ids:
    a dict, or words whose ids are their positions; other names are left out without
    `out_of_vocabulary`.
    """
    return Feature(name, max=most, **rest)


def weight_of(name: str, of: int, **absence: Any) -> Feature:
    """A number that is the weight of one id, in an input with `weights`."""
    return Feature(name, id=of, **absence)


def vocabulary(
    name: str, words: Sequence[str] | Sequence[int], *, other: int | None = None, **absence: Any
) -> Feature:
    """A word (or integer), encoded as its position in `words`; any other is `other`, by default one
    past the last.
    """
    other = len(words) if other is None else other
    return Feature(name, vocabulary=tuple(words), out_of_vocabulary=other, **absence)


def hashed(name: str, buckets: int, **absence: Any) -> Feature:
    """A text, encoded as `tf.strings.to_hash_bucket_fast(text, buckets)`."""
    return Feature(name, hash_buckets=buckets, **absence)


def text(name: str, **absence: Any) -> Feature:
    """A text, not encoded; its tensor's dtype is "string"."""
    return Feature(name, **absence)


@dataclass(frozen=True)
class Input:
    """One input tensor of the signature. With `lengths`, it has the values of a feature's lists,
    and the tensor of that name the number of values of each. With `weights` too, its rows are
    sparse: it has the ids of all rows, and the tensor of that name their weights.
    """

    tensor: str
    entity: str
    dtype: str
    features: tuple[Feature, ...] = ()
    lengths: str | None = None
    weights: str | None = None

    @property
    def width(self) -> int:
        """Size of the last dimension of a tensor of features."""
        return sum(feature.width for feature in self.features)

    def to_json(self) -> dict[str, Any]:
        """The entry in `inputs`."""
        entry: dict[str, Any] = {"tensor": self.tensor, "entity": self.entity, "dtype": self.dtype}
        if self.lengths:
            entry["lengths"] = self.lengths
        if self.weights:
            entry["weights"] = self.weights
        if self.features:
            entry["features"] = [feature.to_json() for feature in self.features]
        return entry

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> "Input":
        """Reads an entry of `inputs`."""
        features = tuple(Feature.from_json(feature) for feature in entry.get("features", ()))
        tensor, entity, dtype = entry["tensor"], entry["entity"], entry["dtype"]
        return cls(tensor, entity, dtype, features, entry.get("lengths"), entry.get("weights"))


@dataclass(frozen=True)
class Output:
    """One output tensor of the signature; the first of a model is the score.

    `width` is its number of columns, and `score_column` the one that treatments are ranked by.
    """

    tensor: str
    name: str
    kind: str = PER_TREATMENT
    width: int = 1
    score_column: int = 0

    def to_json(self) -> dict[str, Any]:
        """The entry in `outputs`."""
        entry: dict[str, Any] = {"tensor": self.tensor, "name": self.name, "kind": self.kind}
        if self.width > 1:
            entry |= {"width": self.width, "score": {"column": self.score_column}}
        return entry

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> "Output":
        """Reads an entry of `outputs`."""
        kind, score = entry.get("kind", PER_TREATMENT), entry.get("score", {"column": 0})
        return cls(entry["tensor"], entry["name"], kind, entry.get("width", 1), score["column"])


@dataclass(frozen=True)
class Metadata:
    """The content of metadata.json."""

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...] = (Output("scores", "score"),)
    signature: str = "serving_default"
    annotations: dict[str, str] = field(default_factory=dict)
    deterministic: bool = True
    framework: str = "tensorflow"
    uplift: dict[str, Any] | None = None
    """The control of an uplift model: `uplift.SLearner.settings` and the like."""
    remote: dict[str, str] | None = None
    """The model on servers of the Open Inference Protocol: `model`, and perhaps `version`."""

    @property
    def is_joined(self) -> bool:
        """True if the tensors have one row per treatment, with the features of its user."""
        return any(each.entity == JOINED for each in self.inputs)

    def features(self, entity: str) -> Iterator[Feature]:
        """All features of users or of treatments, in the order of the file."""
        return (
            feature
            for each in self.inputs
            for feature in each.features
            if (feature.entity or each.entity) == entity
        )

    def to_json(self) -> dict[str, Any]:
        """The content of metadata.json."""
        content: dict[str, Any] = {
            "schema": SCHEMA,
            "framework": self.framework,
            "signature": self.signature,
            "inputs": [each.to_json() for each in self.inputs],
            "outputs": [output.to_json() for output in self.outputs],
        }
        if self.annotations:
            content["annotations"] = self.annotations
        if not self.deterministic:
            content["deterministic"] = False
        if self.uplift is not None:
            content["uplift"] = self.uplift
        if self.remote is not None:
            content["remote"] = self.remote
        return content

    def write(self, directory: Path) -> None:
        """Writes `directory/metadata.json`."""
        content = json.dumps(self.to_json(), indent=2, ensure_ascii=False)
        (directory / "metadata.json").write_text(content + "\n", encoding="utf-8")

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Metadata":
        """Parses the output of `to_json`. It does not validate; the server's own parser does."""
        return cls(
            inputs=tuple(Input.from_json(entry) for entry in content["inputs"]),
            outputs=tuple(Output.from_json(entry) for entry in content["outputs"]),
            signature=content.get("signature", "serving_default"),
            annotations=content.get("annotations", {}),
            deterministic=content.get("deterministic", True),
            framework=content["framework"],
            uplift=content.get("uplift"),
            remote=content.get("remote"),
        )

    @classmethod
    def read(cls, directory: Path) -> "Metadata":
        """Reads the metadata.json of a model directory, at either of its two paths."""
        for place in (directory, directory / "tensorflow_serving_model"):
            if (file := place / "metadata.json").is_file():
                return cls.from_json(json.loads(file.read_text(encoding="utf-8")))
        raise FileNotFoundError(f"no metadata.json in {directory}")
