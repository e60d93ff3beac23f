"""Packages: each is refused with its reason, within the memory for packages."""

import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from outrigger_testenv import images
from outrigger_testenv.attack import layouts, lying, tree_files
from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import MIB, Case, Turn
from outrigger_testenv.attack.downloads import download
from outrigger_testenv.attack.messages import varint
from outrigger_testenv.attack.pieces import File, repeated, whole
from outrigger_testenv.attack.scene import Scene, during
from outrigger_testenv.processes import ProcessError, resident

METADATA = "data/metadata.json"
GOLDEN = "data/golden.jsonl"
PROFILE = "data/profile.json"
GRAPH = "data/tensorflow_serving_model/model/saved_model.pb"
PAD = "data/tensorflow_serving_model/model/assets/pad"

# The hostile files of a package, from those of a good one.
Spoil = Callable[[dict[str, bytes]], dict[str, File]]


def _graph(_: dict[str, bytes]) -> dict[str, File]:
    # Field 2 of a SavedModel is a MetaGraphDef, whose field 2 is the graph. There is no signature,
    # so the package is refused before the engine would read it.
    size = 1900 * MIB
    inner = b"\x12" + varint(size)
    outer = b"\x08\x01\x12" + varint(size + len(inner))
    return {GRAPH: repeated(bytes(MIB), size, first=outer + inner)}


def _cases(_: dict[str, bytes]) -> dict[str, File]:
    features = {"user": {"age": 1.0}, "treatments": [{"features": {"price": 1.0}}]}
    case = {"request": features, "expected": {"scores": [7.0]}}
    return {GOLDEN: repeated(json.dumps(case).encode() + b"\n", 200 * MIB, last=b"{\n")}


def _numbers(_: dict[str, bytes]) -> dict[str, File]:
    first = b'{"request":{"user":{"age":1}},"expected":{"scores":['
    return {GOLDEN: repeated(b"1,", 200 * MIB, first=first, last=b"1]}}\n")}


def _line(_: dict[str, bytes]) -> dict[str, File]:
    return {GOLDEN: repeated(b"x", 250 * MIB)}


def _metadata(good: dict[str, bytes]) -> dict[str, File]:
    first = good[METADATA].rstrip().removesuffix(b"}") + b',"unknown":['
    return {METADATA: repeated(b"0,", 15 * MIB, first=first, last=b"0]}")}


def _vocabulary(good: dict[str, bytes]) -> dict[str, File]:
    content = json.loads(good[METADATA])
    content["inputs"][0]["features"][0] = {"name": "age", "vocabulary": [], "out_of_vocabulary": 0}
    first, last = json.dumps(content).split('"vocabulary": [')
    words = ",".join(f'"{number:x}"' for number in range(1_500_000))
    written = f'{first}"vocabulary": [{words}{last}'.encode()
    return {METADATA: whole(written)}


def _profile(_: dict[str, bytes]) -> dict[str, File]:
    return {PROFILE: repeated(b"[],", 15 * MIB, first=b'{"features":[', last=b"[]]}")}


def _keys(good: dict[str, bytes]) -> dict[str, File]:
    content = json.loads(good[METADATA])
    content["inputs"][0][lying.FORGERY] = 1
    written = json.dumps(content).encode()
    return {METADATA: whole(written)}


def _golden_keys(_: dict[str, bytes]) -> dict[str, File]:
    # A long key, because messages are cut where they are made.
    case = {lying.FORGERY + "a" * MIB: {}, "request": {"user": {"age": 1.0}}}
    written = json.dumps(case).encode()
    return {GOLDEN: whole(written)}


def padded(good: dict[str, bytes], size: int) -> bytes:
    """A good package, with a file of this size beside the model's variables."""
    return _layer(good, lambda _: {PAD: repeated(bytes(MIB), size)})


def _layer(good: dict[str, bytes], spoil: Spoil) -> bytes:
    files = {name: whole(content) for name, content in good.items()}
    return images.compressed_tar({**files, **spoil(good)})


def _download(scene: Scene, turn: Turn, name: str) -> str:
    host = scene.stack.registry.host
    during(scene, turn, download, host=host, repository=f"models/{name}")
    return ""


def _package(
    name: str,
    about: str,
    spoil: Spoil,
    *reasons: str,
    at_once: int = 1,
    check: Callable[[Scene, Sequence[str]], None] = lambda *_: None,
) -> Case:
    """A package that must be refused for one of the reasons; `at_once` of them together."""
    layers: list[bytes] = []

    def names(number: int) -> list[str]:
        return [f"bad/{name}-{number}-{each}" for each in range(at_once)]

    def prepare(scene: Scene, number: int) -> None:
        if not layers:
            layers.append(_layer(scene.files, spoil))
        for each in names(number):
            scene.push(layers, each, each, images.COMPRESSED)

    def attack(scene: Scene, turn: Turn) -> str:
        with ThreadPoolExecutor(at_once) as callers:
            asked = [callers.submit(scene.expect, each, *reasons) for each in names(turn.number)]
            got = {each.result() for each in asked}
        turn.wait()
        check(scene, names(turn.number))
        return ", ".join(sorted(got))

    def discard(scene: Scene, turn: Turn) -> str:
        return _download(scene, turn, names(turn.number)[0])

    return Case(f"package-{name}", about, attack, discard, prepare)


def _tar_size(scene: Scene, number: int) -> None:
    layer = bytearray(images.tar({**scene.files, "data/large": b""}))
    entry = layer.index(b"data/large\0")
    # A size above 8 GiB is a binary number in the field's twelve bytes.
    layer[entry + 124 : entry + 136] = b"\x80" + (2**80).to_bytes(11)
    sums = layer[entry : entry + 512]
    sums[148:156] = b" " * 8
    layer[entry + 148 : entry + 156] = b"%06o\0 " % sum(sums)
    scene.push([bytes(layer)], f"bad/tar-size-{number}", str(number), images.LAYER)


def _attack_tar_size(scene: Scene, turn: Turn) -> str:
    got = scene.expect(f"bad/tar-size-{turn.number}", "IMAGE_INVALID")
    turn.wait()
    return got


def _attack_layouts(scene: Scene, turn: Turn) -> str:
    for kind in layouts.KINDS:
        scene.expect(f"bad/{kind}-{turn.number}", "IMAGE_INVALID", timeout=20)
    turn.wait()
    return "IMAGE_INVALID"


def _links(scene: Scene, number: int) -> None:
    for kind in _ENTRIES:
        layer = images.tar(scene.files, [_entry(kind)])
        scene.push([layer], f"bad/entry-{kind}-{number}", str(number), images.LAYER)


_ENTRIES = {
    "link": (tarfile.SYMTYPE, "/etc/passwd"),
    "hard-link": (tarfile.LNKTYPE, "../../etc/passwd"),
    "device": (tarfile.CHRTYPE, ""),
    "pipe": (tarfile.FIFOTYPE, ""),
    "above": (tarfile.DIRTYPE, ""),
}


def _entry(kind: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo("data/../../above" if kind == "above" else "data/entry")
    entry.type, entry.linkname = _ENTRIES[kind]
    return entry


def _attack_links(scene: Scene, turn: Turn) -> str:
    for kind in _ENTRIES:
        scene.expect(f"bad/entry-{kind}-{turn.number}", "IMAGE_INVALID")
    turn.wait()
    return "IMAGE_INVALID"


def _files(name: str, about: str, kinds: Mapping[str, tree_files.Package]) -> Case:
    """Packages of other frameworks, each of which must be refused for its fault, or loaded."""
    layers = {}

    def model(kind: str, number: int) -> str:
        return f"bad/{name}-{kind}-{number}"

    def prepare(scene: Scene, number: int) -> None:
        for kind, package in kinds.items():
            if kind not in layers:
                layers[kind] = images.compressed_tar(package.files)
            scene.push([layers[kind]], model(kind, number), str(number), images.COMPRESSED)

    def attack(scene: Scene, turn: Turn) -> str:
        for kind, package in kinds.items():
            named = model(kind, turn.number)
            if package.fault is None:
                if error := scene.load(named):
                    raise Broken(f"{named}, which is good: {error}")
                continue
            scene.expect(named, "IMAGE_INVALID", fault=package.fault)
        turn.wait()
        return f"IMAGE_INVALID, {len(kinds)} packages"

    def discard(scene: Scene, turn: Turn) -> str:
        return _download(scene, turn, model(next(iter(kinds)), turn.number))

    return Case(f"package-{name}", about, attack, discard, prepare)


_LEFT = 64 * MIB
# Threads that unpack end ten seconds after their last work, and return their memory then.
_SETTLED = 15.0


def _nothing_left(case: Case) -> Case:
    """The case, and a check that the control plane is as small afterwards as before."""

    def attack(scene: Scene, turn: Turn) -> str:
        process = scene.stack.serve.process
        before = resident(process.pid)
        outcome = case.attack(scene, turn)

        def left() -> int:
            return resident(process.pid) - before

        with suppress(ProcessError):
            process.wait_until(lambda: left() <= _LEFT, _SETTLED)
        if left() > _LEFT:
            raise Broken(f"{left() // MIB} MiB are left behind")
        return f"{outcome}, {max(0, left() // MIB)} MiB left"

    return replace(case, attack=attack)


CASES = [
    # All turns together unpack more than the store of 8 GiB may hold.
    _package("saved-model", "a graph of 1.9 GiB in a layer of 9 MB", _graph, "IMAGE_INVALID"),
    _package("saved-models", "three graphs of 1.9 GiB at once", _graph, "IMAGE_INVALID", at_once=3),
    _package("golden-cases", "200 MiB of small golden cases", _cases, "IMAGE_INVALID"),
    _package("golden-numbers", "a golden case of 200 MiB of numbers", _numbers, "IMAGE_INVALID"),
    _package("golden-line", "golden cases in one line of 250 MiB", _line, "IMAGE_INVALID"),
    _package("metadata", "metadata.json of 15 MiB of numbers", _metadata, "IMAGE_INVALID"),
    _package("vocabulary", "a vocabulary of 1.5 million words", _vocabulary, "IMAGE_INVALID"),
    _package("profile", "a profile of 15 MiB", _profile, "IMAGE_INVALID"),
    _nothing_left(
        _package("refused", "six refused images at once", _metadata, "IMAGE_INVALID", at_once=6)
    ),
    _package(
        "audit",
        "keys that look like lines of the log",
        _keys,
        "IMAGE_INVALID",
        check=Scene.check_text,
    ),
    _package(
        "audit-golden",
        "keys of golden cases that look like lines of the log",
        _golden_keys,
        "IMAGE_INVALID",
        check=Scene.check_text,
    ),
    _files(
        "trees",
        "trees that are truncated, cyclic, deep or large, with sizes that lie",
        tree_files.TREES,
    ),
    _files(
        "machines",
        "factorisation machines with bad lines, and with leaves of no tree",
        tree_files.MACHINES,
    ),
    Case(
        "package-tar-size",
        "an entry of 2^80 bytes in a layer",
        _attack_tar_size,
        lambda scene, turn: _download(scene, turn, f"bad/tar-size-{turn.number}"),
        _tar_size,
    ),
    Case(
        "package-entries",
        "links, devices and pipes in a layer",
        _attack_links,
        lambda scene, turn: _download(scene, turn, f"bad/entry-link-{turn.number}"),
        _links,
    ),
    Case(
        "package-layouts",
        "pipes, devices and links in a layout",
        _attack_layouts,
        prepare=lambda scene, number: layouts.make(scene.layouts, number),
    ),
]
