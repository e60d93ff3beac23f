"""Masks what two runs of one program may differ in: places, addresses, times, random numbers."""

import re
from collections.abc import Mapping
from typing import Any

# In the order in which they are applied.
RULES = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
        (r"\b\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?\b", "<time>"),
        (r"\b1[78]\d{8}(\.\d+)?\b", "<time>"),
        # Durations: units of a second and less, and those of two parts.
        (r"\b\d+(\.\d+)? ?(ns|us|µs|ms)\b", "<duration>"),
        (r"\b(\d+(m|h)){1,2} ?\d+s\b", "<duration>"),
        (r"\b\d+\.\d+ ?s\b", "<duration>"),
        (r"\b\d+[smh] ago\b", "<duration> ago"),
        # Columns are as wide as their longest duration.
        (r" +(?=<duration> ago)", " "),
        # Versions of servables are counted from the time of the start.
        (r"\b17\d{11}\b|\b18\d{11}\b", "<version>"),
        (r"127\.0\.0\.1:\d{4,5}\b", "<address>"),
        (r"/tmp/[A-Za-z0-9._-]+", "<directory>"),
        (r"\(process \d+\)|\bpid \d+", "<process>"),
        # Jobs, and attempts at their chunks. Digits alone are those of a number.
        (r"\b(?=\d*[a-f])[0-9a-f]{16}\b", "<job>"),
        (r"(?<=[-./])[0-9a-f]{8}(?=[-.])", "<attempt>"),
        # Lines that come by time, and the plot of what was done meanwhile.
        (r"rows a second\n(?:[^\n]*[│└][^\n]*\n)+[^\n]*(\n|$)", ""),
        (r"outrigger: (reads the input|\d+ of \d+ rows|the last request that failed)[^\n]*\n", ""),
        (r'revision="\w+"', 'revision="<commit>"'),
    )
)
# Headers of HTTP that are times, or connections.
HEADERS = {"content-length", "date", "outrigger-timing", "server-timing"}
# Names of fields that are times or measured, wherever they are.
FIELDS = re.compile(
    r".*(_ms|_seconds|_micros|timing|_at|since|duration|elapsed|uptime|modified)$"
    r"|servable_version$|worker$|attempt$|fingerprint$|history$"
)
# Fields of the delay before a retry, and those delays that are not measured.
DELAYS = {"retry-after", "retry_after_ms", "retryDelay"}
USUAL = {"1", "200", "1000", "30000", "0.200s", "1s", "30s"}


class Mask:
    """Masks the outcomes of one run, whose own places have names."""

    def __init__(self, places: Mapping[str, str]):
        # The longest first, since some are parts of others.
        self._places = sorted(places.items(), key=lambda each: -len(each[0]))

    def __call__(self, value: Any) -> Any:
        """The value with all that may differ masked."""
        if isinstance(value, dict):
            return {
                self._text(str(key)): self._field(str(key), each) for key, each in value.items()
            }
        if isinstance(value, list):
            return [self(each) for each in value]
        return self._text(value) if isinstance(value, str) else value

    def _field(self, key: str, value: Any) -> Any:
        if key in DELAYS:
            return value if str(value) in USUAL else "<measured>"
        if key == "dead_letters" and isinstance(value, dict):
            # Dead letters have times.
            value = {**value, "blake3": "<measured>"}
        return "<measured>" if FIELDS.match(key) else self(value)

    def _text(self, text: str) -> str:
        for place, name in self._places:
            text = text.replace(place, name)
        for rule, name in RULES:
            text = rule.sub(name, text)
        return text
