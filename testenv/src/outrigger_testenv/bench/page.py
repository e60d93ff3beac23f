"""The page `/ui` in headless Chromium, with an empty cache each time."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from outrigger_testenv import browser
from outrigger_testenv.bench.figure import Effort, Measurement, Skipped
from outrigger_testenv.bench.setup import Setup
from outrigger_testenv.browser import Browser, Page

_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_DRAWN = "document.querySelector('tbody .pill')"


def first_paint(setup: Setup, effort: Effort) -> Measurement:
    """Milliseconds from the navigation to the first contentful paint."""
    return _visits(setup, effort, lambda page: page.wait_for(_PAINTED))


def transferred(setup: Setup, effort: Effort) -> Measurement:
    """Kilobytes received over the network until a model is listed."""
    return _visits(setup, effort, lambda page: page.received / 1000)


def _visits(setup: Setup, effort: Effort, measure: Callable[[Page], float]) -> Measurement:
    if not browser.available():
        raise Skipped("chromium is not installed, see scripts/install-test-tools")
    url = f"http://{setup.stack.serve.admin}/ui"
    with (
        tempfile.TemporaryDirectory(prefix="outrigger-browser-") as directory,
        Browser(Path(directory)) as page,
    ):
        page.call("Network.setCacheDisabled", cacheDisabled=True)
        # The first visit also starts the browser's own processes.
        _visit(page, url)
        samples = [_visit(page, url, measure) for _ in range(effort.repeats)]
        version = page.call("Browser.getVersion")["product"]
    return Measurement(samples, {"browser": version})


def _visit(page: Page, url: str, measure: Callable[[Page], float] = lambda _: 0) -> float:
    page.open("about:blank")
    page.received = 0
    page.open(url)
    page.wait_for(_DRAWN)
    return measure(page)
