"""Files of rows that the server scores: hostile ones harm no other caller."""

from outrigger_testenv.attack.broken import Broken
from outrigger_testenv.attack.case import Case, Turn
from outrigger_testenv.attack.scene import NEIGHBOUR, Scene
from outrigger_testenv.client import Client
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.stack import Stack

# Groups within each other, each of which the reader of Parquet enters by a call of its own.
_GROUPS = (65, 1_366, 16_000)


def nested(groups: int) -> bytes:
    """A Parquet file without rows, whose schema has so many groups within each other."""
    count = groups + 1
    size = bytes([count & 0x7F | 0x80, count >> 7 & 0x7F | 0x80, count >> 14])
    group, leaf = b"\x35\x02\x18\x01g\x15\x02\x00", b"\x15\x02\x25\x02\x18\x01a\x00"
    # The version, the list of elements, no rows and no row groups.
    footer = b"\x15\x02\x19\xfc" + size + group * groups + leaf + b"\x16\x00\x19\x0c\x00"
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _start(scene: Scene) -> Stack:
    directory = scene.directory / "files"
    directory.mkdir()
    for groups in _GROUPS:
        (directory / f"{groups}.parquet").write_bytes(nested(groups))
    return scene.further("health", "admin", validation={"directory": str(directory)})


def _stack(scene: Scene) -> Stack:
    return scene.other(_start)


def _score(scene: Scene, turn: Turn) -> str:
    stack = _stack(scene)
    token = stack.serve.token.read_text().strip()
    with Client(scene.address("admin", stack)) as client:
        for groups in _GROUPS:
            try:
                client.score_file(NEIGHBOUR, f"{groups}.parquet", token=token)
            except OutriggerError as error:
                if error.reason != "FILE_INVALID":
                    raise Broken(f"{groups} groups: {error} instead of FILE_INVALID") from None
            else:
                raise Broken(f"{groups} groups: the file was scored")
    turn.wait()
    return "FILE_INVALID"


CASES = [
    Case(
        "file-nested",
        "Parquet files with up to 16,000 groups within each other",
        _score,
        stack=_stack,
        neighbour=lambda scene, turn: scene.neighbour(turn, _stack(scene)),
    )
]
