"""A headless browser: Debian's Chromium, controlled by the DevTools protocol."""

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
    # Turns off requests to the vendor's servers, which are not part of a test.
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
        # Chromium cannot create its sandbox when it runs as root.
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
        """The DevTools address of the page; `None` until there is one."""
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
        """The DevTools port: the first of the file's two lines. The file exists before both are
        written.
        """
        try:
            lines = self._port_file.read_text().split()
        except FileNotFoundError:
            return None
        return lines[0] if len(lines) == 2 else None


class Page:
    """The browser's page, with its network requests and errors."""

    def __init__(self, url: str):
        # Pings are off: their answers would wait behind events that have not been read yet.
        self._socket = connect(url, max_size=None, compression=None, ping_interval=None)
        self._ids = itertools.count(1)
        # Requested URLs, and bytes received: headers included, and open streams up to now.
        self.requests: list[str] = []
        self.received = 0
        self._streams: set[str] = set()
        # Exceptions of scripts, and errors in the browser's log such as blocked requests.
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """Closes the connection; the browser keeps running."""
        self._socket.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command and returns its result; events received meanwhile are recorded."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=30))
            if message.get("id") != number:
                self._record(message)
            elif "error" in message:
                raise BrowserError(f"{method}: {message['error']}")
            else:
                return message["result"]

    def _record(self, event: Mapping[str, Any]) -> None:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Network.responseReceived" if parameters["type"] == "EventSource":
                self._streams.add(parameters["requestId"])
                self.received += int(parameters["response"]["encodedDataLength"])
            case "Network.dataReceived" if parameters["requestId"] in self._streams:
                # Streams do not end, so their bytes are counted as they arrive.
                self.received += parameters["dataLength"]
            case "Network.loadingFinished" if parameters["requestId"] not in self._streams:
                self.received += int(parameters["encodedDataLength"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(parameters["exceptionDetails"]))
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                self.complaints.append(parameters["entry"]["text"])

    def open(self, url: str) -> None:
        """Opens the URL; returns when the page is loaded, open streams aside."""
        self.call("Page.navigate", url=url)
        there = f"location.href.split('#')[0] === {json.dumps(url.partition('#')[0])}"
        self.wait_for(f"{there} && document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """Evaluates an expression in the page; a promise is awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(f"{script}: {json.dumps(answer['exceptionDetails'])}")
        return answer["result"].get("value")

    def wait_for(self, script: str, timeout: float = 30.0) -> Any:
        """Waits until an expression is true and returns its value; at the timeout, the error has
        the page's text.
        """
        return self._until(lambda: self.run(script), script, timeout)

    def _until(self, condition: Callable[[], Any], what: str, timeout: float) -> Any:
        end = time.monotonic() + timeout
        while True:
            try:
                value = condition()
            except BrowserError as error:
                # While the page changes, the script has no page to run in.
                value, what = None, f"{what} ({error})"
            # An element of the page is returned as an empty object, which counts as true.
            if value not in (None, False, 0, ""):
                return value
            if time.monotonic() > end:
                text = self.run("document.body.innerText")
                raise TimeoutError(f"not within {timeout} s: {what}\n{text}")
            time.sleep(0.05)

    def text(self, selector: str = "body") -> str:
        """The visible text of an element; empty if there is none."""
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def click(self, selector: str) -> None:
        """Clicks at the element's centre with mouse events."""
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
        """Presses a key, `Tab` or `Enter`."""
        code = {"Tab": 9, "Enter": 13}[key]
        text = "\r" if key == "Enter" else ""
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text,
            )  # fmt: skip

    def type(self, text: str) -> None:
        """Types into the focused element."""
        self.call("Input.insertText", text=text)

    def resize(self, width: int, height: int, phone: bool = False) -> None:
        """Sets the size of the viewport, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone,
        )  # fmt: skip

    def prefer(self, scheme: str) -> None:
        """Sets the preferred colour scheme, `light` or `dark`."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self, file: Path) -> Path:
        """Writes a picture of the whole page, including the parts outside of the viewport."""
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(picture["data"]))
        return file
