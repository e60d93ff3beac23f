"""Masks what two runs of one program may differ in: places, addresses, times, random numbers."""

import re
from collections.abc import Mapping
from typing import Any

# The mark of a line that comes by time.
BY_TIME = "<by time>"


def _compiled(*rules: tuple[str, str]) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern), name) for pattern, name in rules)


PLACES = _compiled(
    (r"/tmp/[A-Za-z0-9._-]+", "<directory>"),
    (r'revision="\w+"', 'revision="<commit>"'),
)
# Measured values, in the order in which they are masked. The kind `configuration` has none: its
# durations and addresses are defaults.
MEASURED = _compiled(
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
    (r"\(process \d+\)|\bpid \d+", "<process>"),
    # Jobs, and attempts at their chunks. Digits alone are those of a number.
    (r"\b(?=\d*[a-f])[0-9a-f]{16}\b", "<job>"),
    (r"(?<=[-./])[0-9a-f]{8}(?=[-.])", "<attempt>"),
    # The plot of what was done meanwhile, and lines about it.
    (r"rows a second\n(?:[^\n]*[│└][^\n]*\n)+[^\n]*(\n|$)", ""),
    (r"(?m)^outrigger: (?=reads the input|the last request that failed)", f"{BY_TIME} "),
    (r"(?m)^outrigger: \d+ of \d+ rows.*$", f"{BY_TIME} rows"),
)
# Headers of HTTP whose values are times, or follow from them.
HEADERS = {"content-length", "date"}
# Names of fields that are times or measured, wherever they are.
FIELDS = re.compile(
    r".*(_ms|_seconds|_micros|timing|_at|since|duration|elapsed|uptime|modified)$"
    r"|servable_version$|worker$|attempt$|fingerprint$"
)
# Fields of the delay before a retry, and those delays that are not measured.
DELAYS = {"retry-after", "retry_after_ms", "retryDelay"}
USUAL = {"1", "200", "1000", "30000", "0.200s", "1s", "30s"}


class Mask:
    """Masks the outcomes of one run, whose own places have names."""

    def __init__(self, places: Mapping[str, str]):
        # The longest first, since some are parts of others.
        self._places = sorted(places.items(), key=lambda each: -len(each[0]))

    def __call__(self, value: Any, kind: str = "") -> Any:
        """The value with all that may differ in a case of this kind masked."""
        return self._masked(value, PLACES if kind == "configuration" else PLACES + MEASURED)

    def _masked(self, value: Any, rules: tuple) -> Any:
        if isinstance(value, dict):
            return {
                self._text(str(key), rules): self._field(str(key), each, rules)
                for key, each in value.items()
            }
        if isinstance(value, list):
            return [self._masked(each, rules) for each in value]
        return self._text(value, rules) if isinstance(value, str) else value

    def _field(self, key: str, value: Any, rules: tuple) -> Any:
        if key in DELAYS:
            return value if str(value).lstrip("#") in USUAL else "<measured>"
        if key == "dead_letters" and isinstance(value, dict):
            # Dead letters have times.
            value = {**value, "blake3": "<measured>"}
        # The history of a job, and not that of a model or a feature of this name.
        is_of_job = key == "history" and isinstance(value, dict) and "step_seconds" in value
        masked = self._masked(value, rules)
        return _measured(masked) if is_of_job or FIELDS.match(key) else masked

    def _text(self, text: str, rules: tuple) -> str:
        for place, name in self._places:
            text = text.replace(place, name)
        for rule, name in rules:
            text = rule.sub(name, text)
        return text


def _measured(value: Any) -> Any:
    """The names of what was measured, and its texts without digits."""
    if isinstance(value, dict):
        return {key: _measured(each) for key, each in value.items()}
    is_kept = value is None or (isinstance(value, str) and not re.search(r"\d|<", value))
    return value if is_kept else "<measured>"
