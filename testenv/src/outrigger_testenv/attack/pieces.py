"""Large files of layers, which never are in memory as a whole."""

from collections.abc import Iterable, Iterator
from itertools import repeat

from outrigger_testenv.attack.case import MIB

# A file of a layer: its size, and its bytes in pieces.
File = tuple[int, Iterable[bytes]]


def whole(content: bytes) -> File:
    """A file with this content."""
    return len(content), [content]


def repeated(line: bytes, size: int, last: bytes = b"", first: bytes = b"") -> File:
    """A file of about this size: one line again and again, between a first and a last one."""
    piece = line * max(1, MIB // len(line))
    count = size // len(piece)

    def pieces() -> Iterator[bytes]:
        yield first
        yield from repeat(piece, count)
        yield last

    return len(first) + count * len(piece) + len(last), pieces()
