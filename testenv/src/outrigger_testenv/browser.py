"""A real browser without a window: Debian's Chromium, spoken to over the DevTools protocol."""

import base64
import itertools
import json
import os
import shutil
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

from outrigger_testenv.processes import Process

_PROGRAM = "chromium"
_FLAGS = [
    "--headless=new",
    "--remote-debugging-port=0",
    "--no-first-run",
    "--disable-extensions",
    # What it would ask its maker about is not what is tested.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
]


def available() -> bool:
    """Whether Chromium is installed."""
    return shutil.which(_PROGRAM) is not None


class BrowserError(RuntimeError):
    """The browser refused a command, or a script in the page threw."""


class Browser:
    """Chromium with one page. Use it as a context manager."""

    def __init__(self, directory: Path):
        profile = directory / "profile"
        profile.mkdir(parents=True, exist_ok=True)
        self._port_file = profile / "DevToolsActivePort"
        # It cannot make its sandbox when it runs as root.
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        command = [_PROGRAM, *_FLAGS, *sandbox, f"--user-data-dir={profile}", "about:blank"]
        self.process = Process("chromium", command, directory / "chromium.log")

    def __enter__(self) -> "Page":
        self.process.start()
        try:
            self.process.wait_until(lambda: self._page_url() is not None)
            self._page = Page(self._page_url())
        except BaseException:
            self.process.kill()
            raise
        return self._page

    def __exit__(self, *_: object) -> None:
        self._page.close()
        self.process.kill()

    def _page_url(self) -> str | None:
        """Where to speak to its page, as soon as it has one."""
        port = self._port()
        if port is None:
            return None
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=5) as answer:
                targets: list[dict[str, Any]] = json.load(answer)
        except OSError:
            return None
        pages = (each for each in targets if each["type"] == "page")
        return next((each["webSocketDebuggerUrl"] for each in pages), None)

    def _port(self) -> str | None:
        """The first of the file's two lines: the file is there before it is written."""
        try:
            lines = self._port_file.read_text().split()
        except FileNotFoundError:
            return None
        return lines[0] if len(lines) == 2 else None


class Page:
    """One page: where it is, what it shows, and what it asked the network for."""

    def __init__(self, url: str):
        # No pings: their answers wait behind events that nobody has read yet.
        self._socket = connect(url, max_size=None, compression=None, ping_interval=None)
        self._ids = itertools.count(1)
        # URLs asked for, and bytes that came over the network: headers, and streams until now.
        self.requests: list[str] = []
        self.received = 0
        self._streams: set[str] = set()
        # What scripts threw and what was blocked.
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """Ends the conversation; the browser stays."""
        self._socket.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol; events that come meanwhile are noted."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=30))
            if message.get("id") != number:
                self._note(message)
            elif "error" in message:
                raise BrowserError(f"{method}: {message['error']}")
            else:
                return message["result"]

    def _note(self, event: Mapping[str, Any]) -> None:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Network.responseReceived" if parameters["type"] == "EventSource":
                self._streams.add(parameters["requestId"])
                self.received += int(parameters["response"]["encodedDataLength"])
            case "Network.dataReceived" if parameters["requestId"] in self._streams:
                # They do not end: what comes counts at once.
                self.received += parameters["dataLength"]
            case "Network.loadingFinished" if parameters["requestId"] not in self._streams:
                self.received += int(parameters["encodedDataLength"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(parameters["exceptionDetails"]))
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                self.complaints.append(parameters["entry"]["text"])

    def open(self, url: str) -> None:
        """Goes there; returns once the page is loaded, streams aside."""
        self.call("Page.navigate", url=url)
        there = f"location.href.split('#')[0] === {json.dumps(url.partition('#')[0])}"
        self.wait_for(f"{there} && document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page, awaited if it is a promise."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(f"{script}: {json.dumps(answer['exceptionDetails'])}")
        return answer["result"].get("value")

    def wait_for(self, script: str, timeout: float = 30.0) -> Any:
        """The value of an expression once it is true; the page's text when it never is."""
        return self._until(lambda: self.run(script), script, timeout)

    def _until(self, condition: Callable[[], Any], what: str, timeout: float) -> Any:
        end = time.monotonic() + timeout
        while True:
            try:
                value = condition()
            except BrowserError as error:
                # Between two pages there is none.
                value, what = None, f"{what} ({error})"
            # An element of the page is an empty object here.
            if value not in (None, False, 0, ""):
                return value
            if time.monotonic() > end:
                text = self.run("document.body.innerText")
                raise TimeoutError(f"not within {timeout} s: {what}\n{text}")
            time.sleep(0.05)

    def text(self, selector: str = "body") -> str:
        """What a person reads in an element; empty when there is none."""
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def click(self, selector: str) -> None:
        """Clicks where the element is, as a mouse would."""
        spot = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind, x=spot[0], y=spot[1], button="left", clickCount=1,
            )  # fmt: skip

    def press(self, key: str) -> None:
        """Presses a key: `Tab`, `Enter`."""
        code = {"Tab": 9, "Enter": 13}[key]
        text = "\r" if key == "Enter" else ""
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text,
            )  # fmt: skip

    def type(self, text: str) -> None:
        """Types into what has the focus."""
        self.call("Input.insertText", text=text)

    def resize(self, width: int, height: int, phone: bool = False) -> None:
        """The size of what is seen, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone,
        )  # fmt: skip

    def prefer(self, scheme: str) -> None:
        """What the system is said to prefer: `light` or `dark`."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self, file: Path) -> Path:
        """A picture of the whole page, also of what one would have to scroll to."""
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(picture["data"]))
        return file
