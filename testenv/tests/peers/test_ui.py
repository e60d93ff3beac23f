"""The page `/ui` in a real browser, with data from real processes. Screenshots are kept."""

import json
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pytest

from outrigger_testenv import images
from outrigger_testenv.binary import repository
from outrigger_testenv.browser import Browser
from outrigger_testenv.client import request, selector
from outrigger_testenv.errors import OutriggerError
from outrigger_testenv.load import Load
from outrigger_testenv.variants import better, constant, good

pytestmark = pytest.mark.needs("chromium")
PICTURES = repository() / "testenv" / "build" / "ui"
DESKTOP, PHONE = (1240, 900), (360, 740)
# The limit for the page and its first events, bytes.
MOST_BYTES = 150_000
MODEL = "team/churn"
# Text that would break the page if it were inserted as markup.
MARKUP = "<img src=x onerror=document.title='broken'>"
# Settings that give a verdict within seconds for a harmful canary, and none for a good one.
TRIAL = {
    "minimum_time": "3600s",
    "warm_up": {"requests": 200},
    "ramp": {"share": 0.3},
    "signals": {"latency": {"limits": {"tolerance": 1.0, "margin": 9.0}}},
}


@pytest.fixture(scope="module", autouse=True)
def pictures():
    """Prints the path of the screenshots."""
    yield
    print(f"\npictures of the page: {PICTURES}")


@pytest.fixture
def stack(needs_registry, own_stack):
    """A stack of the test's own, without models."""
    return own_stack(overrides={"canary": {"defaults": TRIAL}})


@pytest.fixture
def page(tmp_path):
    """A browser's page; errors in it fail the test."""
    with Browser(tmp_path / "browser") as page:
        page.resize(*DESKTOP)
        page.prefer("light")
        yield page
        assert not page.complaints, page.complaints


def address(stack, fragment=""):
    return f"http://{stack.serve.admin}/ui{fragment}"


def look(page, stack, fragment=""):
    """Opens the page, and waits until it has received the state."""
    page.open(address(stack, fragment))
    page.wait_for("document.querySelector('#live').dataset.state === 'live'")


def picture(page, name):
    return page.screenshot(PICTURES / f"{name}.png")


def requests_of(model):
    """Requests of many users without a routing key."""
    draw = np.random.default_rng(1)
    for age in draw.integers(18, 80, 300):
        offers = pd.DataFrame({"price": draw.normal(0, 3, 5).astype("float32")})
        message = request({"age": int(age)}, offers)
        message.model.CopyFrom(selector(model))
        yield message


@contextmanager
def on_trial(stack, package, function, directory):
    """Runs a trial of this canary under load."""
    first = stack.push(package(good), MODEL)
    stack.client().load(MODEL)
    with Load(stack.serve.target, requests_of(MODEL), directory, concurrency=2) as load:
        load.wait_for(first)
        yield stack.push(package(function), MODEL, "latest_canary")


def push_broken(stack, package):
    """Pushes a model with an invalid metadata.json, whose error contains markup."""
    files = images.files_of(package(good).directory)
    metadata = json.loads(files["data/metadata.json"])
    files["data/metadata.json"] = json.dumps({**metadata, MARKUP: 1}).encode()
    images.push_layers(stack.registry, "models/team/broken", "latest", [images.tar(files)])
    with suppress(OutriggerError):
        stack.client().load("team/broken")


def test_a_model_appears_when_it_is_pushed_and_asked_for(stack, page, package):
    look(page, stack)
    page.wait_for("document.querySelector('.empty')")
    told = page.text(".empty")
    assert "outrigger push" in told and stack.images in told
    picture(page, "empty-light")
    digest = stack.push(package(good), MODEL)
    stack.client().load(MODEL)
    page.wait_for("document.querySelector('tbody .pill')?.innerText === 'available'")
    row = page.text("tbody tr")
    assert MODEL in row and "latest" in row
    assert digest.removeprefix("sha256:")[:12] in row
    assert "≈" in page.text("td.memory") and "on disk" in row
    assert page.run("document.querySelector('.digest').title").startswith(digest)
    page.wait_for("document.querySelector('td.rate').innerText.endsWith('/s')")
    page.wait_for("document.querySelector('#tiles').innerText.includes('Reachable')")
    assert "1 version loaded" in page.text("#tiles")


def test_the_life_of_a_failing_model_has_its_reason_and_markup_stays_text(stack, page, package):
    push_broken(stack, package)
    look(page, stack)
    page.wait_for("document.querySelector('tbody .trouble')")
    assert "IMAGE_INVALID" in page.text("tbody .trouble")
    page.click("tbody th a")
    page.wait_for("document.querySelector('.timeline [data-state=failed]')")
    life = page.text(".timeline")
    assert life.index("downloaded") < life.index("IMAGE_INVALID") < life.index(MARKUP)
    assert "not tried again until something changes" in life
    assert page.run("location.hash") == "#/models/team/broken"
    assert page.run("document.activeElement.innerText") == "team/broken"
    picture(page, "failing-light")
    page.prefer("dark")
    picture(page, "failing-dark")
    # Reasons may contain any text, so it must not become markup.
    assert page.run("document.querySelectorAll('main img').length") == 0
    assert "broken" not in page.run("document.title").removeprefix("team/broken")


def test_each_account_of_memory_has_its_use_its_limit_and_its_refusals_by_reason(
    needs_registry, own_stack, page, package
):
    stack = own_stack(overrides={"server": {"memory": "256MiB"}})
    files = images.files_of(package(good).directory)
    metadata = json.loads(files["data/metadata.json"])
    # Parsed, it takes more than the account of packages, an eighth.
    metadata["annotations"] = {"notes": "x" * (3 << 20)}
    files["data/metadata.json"] = json.dumps(metadata).encode()
    images.push_layers(stack.registry, "models/team/large", "latest", [images.tar(files)])
    with pytest.raises(OutriggerError, match="IMAGE_INVALID"):
        stack.client().load("team/large")
    look(page, stack)
    packages = "[data-account=packages]"
    page.wait_for(f"document.querySelector('{packages}')?.innerText.includes('IMAGE_INVALID')")
    assert page.text(packages) == "packages\t0 B\t32 MiB\t1 IMAGE_INVALID"
    accounts = "[...document.querySelectorAll('[data-account]')].map((it) => it.dataset.account)"
    assert " ".join(page.run(accounts)) == "answers packages plans pulls requests unread waiting"
    assert page.text("[data-account=plans]").endswith("\tnone")
    picture(page, "memory-light")
    page.resize(*PHONE, phone=True)
    assert page.run("document.documentElement.scrollWidth") <= PHONE[0]
    picture(page, "memory-phone")
    why = stack.serve.run("models", "why", "team/large").stdout
    assert "memory   refused by the account packages: 0 B of 32.0 MiB in use now" in why


def test_a_canary_has_arms_and_bounds_that_close_in_and_a_verdict(stack, page, package, tmp_path):
    look(page, stack)
    with on_trial(stack, package, better, tmp_path) as digest:
        band = "document.querySelector('[data-signal=scores] .band')?.getAttribute('d').split('L')"
        page.wait_for(f"{band}?.length > 12", timeout=120)
        told = page.text(".canary")
        for part in ("live", "canary", "30 % of the traffic", digest.removeprefix("sha256:")[:12]):
            assert part in told
        signals = "[...document.querySelectorAll('.signal')].map((it) => it.dataset.signal).sort()"
        assert page.run(signals) == ["error_rate", "latency", "non_finite", "scores"]
        # Closer than at first, once they are within what the chart shows.
        page.wait_for(f"{WIDTHS} < 1", timeout=120)
        page.wait_for("document.querySelector('.tiles .spark .line')")
        # Latency: a line as soon as there are two points, and the latest figure.
        page.wait_for("document.querySelector('td.latency .spark .line')")
        page.wait_for("document.querySelector('td.latency .figure').innerText.endsWith('s')")
        picture(page, "canary-light")
        page.prefer("dark")
        picture(page, "canary-dark")
        page.click("tbody th a")
        page.wait_for(
            "document.querySelector('#detail .canary') && document.querySelector('.pair')"
        )
        picture(page, "model-dark")
        page.resize(*PHONE, phone=True)
        assert page.run("document.documentElement.scrollWidth") <= PHONE[0]
        picture(page, "model-phone")
    by_hand = ["--by", MARKUP, "--reason", MARKUP]
    stack.serve.run("canary", "abort", MODEL, *by_hand).check_returncode()
    page.run("location.hash = '#/'")
    page.wait_for("document.querySelector('#decisions .pill')")
    told = page.text("#decisions")
    assert "rolled back" in told and f"by {MARKUP}" in told
    assert page.run("document.querySelectorAll('main img').length") == 0


# The last distance between the drawn bounds, divided by the first.
WIDTHS = """(() => {
  const points = document.querySelector('[data-signal=scores] .band').getAttribute('d')
    .slice(1, -1).split('L').map((point) => Number(point.split(' ')[1]));
  const height = (at) => points.at(-1 - at) - points[at];
  return height(points.length / 2 - 1) / height(0);
})()"""


def test_a_bad_canary_ends_with_its_verdict(stack, page, package, tmp_path):
    with on_trial(stack, package, constant, tmp_path):
        look(page, stack)
        page.wait_for("document.querySelector('#decisions summary')", timeout=120)
    told = page.text("#decisions")
    assert "rolled back" in told and "scores" in told and "by judge" in told
    page.click("#decisions summary")
    page.wait_for("document.querySelector('#decisions details').open")
    assert page.run("document.querySelector('#decisions [data-signal=scores]').dataset.state") == (
        "harmful"
    )
    picture(page, "verdict-light")


def test_a_canary_shows_shadowed_requests_and_features_that_differ(stack, page):
    look(page, stack)
    # Without awaiting in between: the stream does not know this canary and would remove it.
    told, opened, still_open = page.run(f"""(async () => {{
      const tell = await ({SHADOWED})();
      tell();
      const canary = () => document.querySelector('.canary');
      const told = canary().innerText;
      canary().querySelector('.deviations summary').click();
      const opened = canary().innerText;
      tell();
      return [told, opened, canary().querySelector('details').open];
    }})()""")
    assert "Shadowed 800 requests: both put the same first in 99 %" in told
    assert "live, last 5 minutes\t4,000\t12\t0\t20.1 ms\t45.5 ms\t0.41" in told
    assert "Feature skew channel: missing" in told and "in [0 %, unknown]" in told
    assert "canary channel: missing: 12 % of 400 requests instead of 2 %" in opened
    assert still_open, "told again, as every second, what was opened stays open"
    page.run(f"({SHADOWED})().then((tell) => tell())")
    picture(page, "shadowed-light")


# Feeds the page with the state that the stream would send for such a canary; a real one needs a
# profile and time.
SHADOWED = """async () => {
  const { list, takeAll } = await import('/ui/canaries.js');
  const largest = Number.MAX_VALUE;
  const skew = { signal: 'skew', state: 'open', live: 0.01, canary: 0.1, difference: 0.1, lower: 0,
    upper: largest, tolerance: 0, margin: 0.05, detail: 'channel: missing' };
  const verdict = { decision: 'continue', summary: 'continue',
    live_requests: 4000, canary_requests: 400,
    expected_share: 0.1, seen_share: 0.09, shares_fit: true, findings: [skew],
    shadowed: { requests: 800, agreement: 0.99, median: 0.001, lower: -0.02, upper: 0.03 },
    deviations: [{ arm: 'canary', place: 'channel: missing', expected: 0.02, seen: 0.12,
      requests: 400 }] };
  const figures = { requests: 4000, failed: 12, non_finite: 0, latency_median: 0.0201,
    latency_p95: 0.0455, score_median: 0.41 };
  const canary = { id: 'a', model: 'team/churn', tag: 'latest', canary_tag: 'latest_canary',
    live_digest: null, canary_digest: 'sha256:0123456789abcdef',
    phase: 'split', message: '', share: 0.1,
    elapsed: 60, verdict, arms: [{ arm: 'live', trial: figures, lately: figures }],
    points: { skew: [[1, 0.2, 0, null], [60, 0.1, 0, null]] } };
  const state = { canaries: new Map(), decisions: [] };
  return () => {
    takeAll(state, { canaries: [canary], decisions: [] });
    list(state);
  };
}"""


def test_it_says_when_it_is_disconnected_and_comes_back_by_itself(stack, page, package):
    stack.push(package(good), MODEL)
    stack.client().load(MODEL)
    look(page, stack)
    page.wait_for("document.querySelector('tbody .pill')")
    stack.serve.process.stop()
    page.wait_for("document.querySelector('#live').dataset.state === 'lost'")
    assert "Disconnected" in page.text("#lost")
    assert MODEL in page.text("tbody"), "what was known stays to be seen"
    picture(page, "disconnected-light")
    # The connection errors are expected here.
    page.complaints.clear()
    stack.serve.start()
    page.wait_for("document.querySelector('#live').dataset.state === 'live'")
    assert page.run("document.querySelector('#lost').hidden")
    page.wait_for("document.querySelector('tbody .pill')?.innerText === 'available'")
    page.complaints.clear()


def test_pages_that_were_left_keep_no_connection_from_others(stack, page):
    """A browser opens at most six connections to a server, and keeps pages for "back"."""
    for _ in range(8):
        page.open("about:blank")
        look(page, stack)


def test_the_theme_is_the_systems_until_the_user_chooses(stack, page):
    background = "getComputedStyle(document.body).backgroundColor"
    look(page, stack)
    bright = page.run(background)
    page.prefer("dark")
    dark = page.run(background)
    assert bright != dark
    # The button switches from system to light to dark.
    page.click("#theme")
    assert page.run(background) == bright
    look(page, stack)
    assert page.run(background) == bright, "the choice is remembered"
    page.click("#theme")
    page.prefer("light")
    assert page.run(background) == dark
    assert "dark" in page.run("document.querySelector('#theme').getAttribute('aria-label')")
    picture(page, "empty-dark")


def test_everything_is_reached_by_keyboard_and_seen_to_be(stack, page, package):
    stack.push(package(good), MODEL)
    stack.client().load(MODEL)
    look(page, stack)
    page.wait_for("document.querySelector('tbody a')")
    order = []
    for _ in range(12):
        page.press("Tab")
        where, outline = page.run(FOCUS)
        if where == "BODY":
            break
        assert outline != "none", f"{where} has the focus and does not show it"
        order.append(where)
    assert order == ["Skip to content", "Outrigger", "theme", "troubled", "filter", MODEL, "digest"]
    page.run("document.querySelector('tbody a').focus()")
    page.press("Enter")
    page.wait_for("document.querySelector('#detail h1')")
    assert page.run("document.activeElement.tagName") == "H1"
    landmarks = "['header', 'main', 'footer'].every((name) => document.querySelector(name))"
    assert page.run(landmarks)
    assert page.run("document.documentElement.lang") == "en"


FOCUS = """(() => {
  const it = document.activeElement;
  if (it === document.body) return ['BODY', ''];
  const name = it.id || (it.matches('.digest') ? 'digest' : it.innerText.trim());
  return [name, getComputedStyle(it).outlineStyle];
})()"""


def test_it_fits_a_phone(stack, page, package):
    stack.push(package(good), MODEL)
    push_broken(stack, package)
    stack.client().load(MODEL)
    page.resize(*PHONE, phone=True)
    look(page, stack)
    page.wait_for("document.querySelectorAll('tbody tr').length === 2")
    wide = "document.documentElement.scrollWidth"
    assert page.run(wide) <= PHONE[0]
    picture(page, "phone-light")
    page.prefer("dark")
    page.click("tbody th a")
    page.wait_for("document.querySelector('.timeline')")
    assert page.run(wide) <= PHONE[0]
    picture(page, "failing-phone-dark")


def test_the_filter_finds_and_the_list_is_bounded(stack, page, package):
    for name in ("team/one", "team/two"):
        stack.push(package(good), name)
        stack.client().load(name)
    look(page, stack)
    page.wait_for("document.querySelectorAll('tbody tr').length === 2")
    page.click("#filter")
    page.type("TWO latest")
    page.wait_for("document.querySelectorAll('tbody tr').length === 1")
    assert "team/two" in page.text("tbody") and page.text("#count") == "1 of 2"
    page.type(" nobody")
    page.wait_for("document.querySelector('.empty')?.innerText === 'No model matches.'")
    page.run("document.querySelector('#filter').value = ''")
    rows = page.run(THOUSANDS)
    assert rows["drawn"] == 100 and "4,900" in rows["more"]


# More models than a test should push, so the list's module gets them directly.
THOUSANDS = """(async () => {
  const { list } = await import('/ui/models.js');
  const row = (name) => ({ name, image: '', digest: null, state: 'new', activity: '', since: null,
    size_bytes: 0, versions: 0, tags: [], failure: null });
  const names = Array.from({ length: 5000 }, (_, at) => `model-${at}`);
  const traffic = { at: 0, latest: () => undefined, has: () => false };
  list({ models: new Map(names.map((name) => [name, row(name)])), traffic });
  return { drawn: document.querySelectorAll('tbody tr').length,
    more: document.querySelector('#more').innerText };
})()"""


def test_the_page_is_small_and_loads_nothing_from_other_servers(stack, page, package, capsys):
    stack.push(package(good), MODEL)
    stack.client().load(MODEL)
    look(page, stack)
    page.wait_for("document.querySelector('tbody .pill')")
    paint = page.wait_for(
        "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
    )
    with capsys.disabled():
        print(f"\n  first paint after {paint:.0f} ms, {page.received} bytes")
    assert page.received <= MOST_BYTES
    hosts = {urlsplit(url).netloc for url in page.requests if not url.startswith("about:")}
    assert hosts == {stack.serve.admin}


# Unloads and deletes the model as far as the listener lets a page; returns gRPC's status code.
UNLOAD = """(async () => {
  const name = [...new TextEncoder().encode('%s')];
  const model = [0x0a, name.length, ...name];
  const message = [0x0a, model.length, ...model, 0x10, 1];
  const answer = await fetch('/outrigger.v1.ModelService/UnloadModel', {
    method: 'POST', headers: { 'content-type': 'application/grpc' },
    body: new Uint8Array([0, 0, 0, 0, message.length, ...message]) });
  return answer.headers.get('grpc-status');
})()"""
PERMISSION_DENIED = "7"


def test_a_name_that_resolves_to_the_listener_is_another_site(own_stack, package, tmp_path):
    """As in an attack by DNS rebinding: the browser takes the listener for a part of that site."""
    stack = own_stack(overrides={"auth": {"anonymous": ["predict", "read", "change"]}})
    stack.push(package(good), MODEL)
    stack.client().load(MODEL)
    port = stack.serve.admin.rsplit(":", 1)[1]
    with Browser(tmp_path / "browser") as page:
        # Chromium resolves every name below localhost to loopback.
        page.open(f"http://evil.localhost:{port}/ui")
        assert "PERMISSION_DENIED" in page.text()
        for host in ("evil.localhost", "localhost"):
            page.open(f"http://{host}:{port}/ui")
            assert page.run(UNLOAD % MODEL) == PERMISSION_DENIED
        assert "Outrigger" in page.text("header")
    why = stack.serve.run("models", "why", MODEL).stdout
    assert why.rstrip().endswith("LOADED -> AVAILABLE  passed the gate"), why
