"""llama.cpp's server on loopback."""

from pathlib import Path

from outrigger_testenv.language import gguf
from outrigger_testenv.pinned import Pinned
from outrigger_testenv.processes import Process, free_ports, listens

LLAMA = Pinned(
    "language", Path(__file__).parent / "requirements" / "xllamacpp.txt", "language-server"
)
_START = 120.0


class Llama:
    """The server with a tiny model in `directory`, which is new. It is a context manager."""

    def __init__(self, directory: Path):
        directory.mkdir(parents=True)
        (self.port,) = free_ports(1)
        model = directory / "tiny.gguf"
        gguf.write(model)
        script = Path(__file__).parent / "serve.py"
        command = [LLAMA.installed_python(), script, model, str(self.port)]
        self.process = Process("llama.cpp", command, directory / "server.log")

    @property
    def url(self) -> str:
        """The address before `/v1`."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "Llama":
        self.process.start()
        try:
            self.process.wait_until(lambda: listens(self.port), _START)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()
