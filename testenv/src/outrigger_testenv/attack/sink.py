"""A program that discards what it receives: the baseline of attacks.

`python -m outrigger_testenv.attack.sink PORT [CERTIFICATE KEY]`; with a certificate, over TLS.
"""

import asyncio
import ssl
import sys

from outrigger_testenv.attack import frames

_HELLO = frames.settings({frames.INITIAL_WINDOW: frames.MAX_WINDOW}) + frames.window(
    0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW
)


class Discard(asyncio.Protocol):
    """Discards all bytes. To a client of HTTP/2 it grants the largest windows."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport for the windows."""
        self._transport = transport
        self._first = True

    def data_received(self, data: bytes) -> None:
        """Discards the bytes."""
        if self._first and data.startswith(frames.PREFACE[:3]):
            self._transport.write(_HELLO)
        self._first = False


async def _serve(port: int, tls: ssl.SSLContext | None) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Discard, "127.0.0.1", port, ssl=tls, backlog=4096)
    await server.serve_forever()


def main() -> int:
    """Serves until it is killed."""
    port, *files = sys.argv[1:]
    tls = None
    if files:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*files)
        tls.set_alpn_protocols(["h2", "http/1.1"])
    asyncio.run(_serve(int(port), tls))
    return 0


if __name__ == "__main__":
    sys.exit(main())
