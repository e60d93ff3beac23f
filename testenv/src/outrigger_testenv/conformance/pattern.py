"""Expected answers."""

import re


def matches(pattern: str, text: str) -> bool:
    """Returns whether a text is the pattern, in which * stands for any text."""
    parts = map(re.escape, pattern.split("*"))
    return re.fullmatch(".*".join(parts), text, re.DOTALL) is not None
