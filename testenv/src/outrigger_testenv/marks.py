"""Text of documentation pages that commands write."""

import re
from pathlib import Path


class MarksMissing(RuntimeError):
    """A page does not have the marks around the text."""


def insert(file: Path, name: str, text: str) -> None:
    """Replaces the text between a page's marks of this name. Raises MarksMissing if it has none."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    pattern = re.compile(f"({re.escape(begin)}).*?({re.escape(end)})", re.DOTALL)
    before = file.read_text()
    after, count = pattern.subn(lambda found: found[1] + text + found[2], before)
    if count != 1:
        raise MarksMissing(f"{file} has no marks {begin.strip()} and {end}")
    file.write_text(after)
