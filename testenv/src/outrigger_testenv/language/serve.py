"""Serves a file of GGUF with llama.cpp: `serve.py MODEL PORT`. Runs in the environment of the
server, which has no other package.
"""

import signal
import sys

import xllamacpp


def main() -> None:
    """Serves until the process is ended."""
    model, port = sys.argv[1:]
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = int(port)
    parameters.n_parallel = 4
    parameters.n_ctx = 2048
    parameters.cpuparams.n_threads = 1
    parameters.warmup = False
    # It listens until it is dropped.
    server = xllamacpp.Server(parameters)
    signal.pause()
    del server


if __name__ == "__main__":
    main()
