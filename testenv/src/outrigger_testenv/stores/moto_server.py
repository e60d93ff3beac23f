"""Moto's server, run by Moto's own Python: `moto_server.py HOST PORT`.

Moto checks the condition of a write and then writes, and another thread may write in between. Here
it has one request at a time, so both are one step, as they are in S3.
"""

import io
import sys
from threading import Lock

from moto.moto_server import werkzeug_app
from werkzeug.serving import run_simple
from werkzeug.wrappers import Request


def main(host: str, port: int) -> None:
    """Answers until the process is stopped."""
    moto = werkzeug_app.DomainDispatcherApplication(werkzeug_app.create_backend_app)
    moto.debug = True
    turn = Lock()

    def one_at_a_time(environ, start_response):
        # Read before: a body that does not end must not keep the turn.
        environ["wsgi.input"] = io.BytesIO(Request(environ).get_data(cache=False))
        with turn:
            return list(moto(environ, start_response))

    run_simple(host, port, one_at_a_time, threaded=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
