"""An engine that has ended or hangs, whatever its kind, as its callers see it."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from .errors import OutriggerError

# The promises are 5 s and 1 s; the rest is for a busy machine.
_FIRST = 9.0
_LATER = 4.0


def assert_is_away(predict: Callable[[], object]) -> None:
    """Requests with long deadlines that wait for the engine get its failure after 5 s, and those
    that come later after 1 s."""
    with ThreadPoolExecutor(20) as pool:
        first = list(pool.map(lambda _: _ended(predict), range(20)))
    assert {reason for reason, _ in first} == {"ENGINE_UNAVAILABLE"}, first
    assert max(seconds for _, seconds in first) < _FIRST, first
    later = _ended(predict)
    print(f"\n  the first after {max(seconds for _, seconds in first):.1f} s, later {later}")
    assert later[0] == "ENGINE_UNAVAILABLE" and later[1] < _LATER, later


def _ended(predict: Callable[[], object]) -> tuple[str, float]:
    """The reason of a request that fails, and the seconds that it took."""
    began = time.monotonic()
    with pytest.raises(OutriggerError) as caught:
        predict()
    return caught.value.reason, time.monotonic() - began
