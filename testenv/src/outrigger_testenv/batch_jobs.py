"""Batch jobs that run as processes of their own, with a status page."""

import json
import subprocess
from pathlib import Path
from typing import Any

from outrigger_testenv.binary import outrigger
from outrigger_testenv.processes import Process, free_ports

TOKEN = "a-token-of-the-tests"


class BatchJob:
    """A job with a listener. Use it as a context manager: its process ends with it."""

    def __init__(self, directory: Path, settings: dict[str, Any]):
        (port,) = free_ports(1)
        self.output = directory / "scored"
        self.address = f"127.0.0.1:{port}"
        self.page = f"http://{self.address}/ui"
        token = directory / "token"
        token.write_text(TOKEN)
        job = {
            **settings,
            "output": str(self.output),
            "listen": self.address,
            "token_file": str(token),
        }
        file = directory / "job.yaml"
        # JSON is valid YAML.
        file.write_text(json.dumps(job))
        self.command = [outrigger(), "batch", "run", file]
        self.process = Process("outrigger-batch", self.command, directory / "batch.log")

    def __enter__(self) -> "BatchJob":
        self.process.start()
        self.process.wait_until(lambda: "status page" in self.process.log.read_text())
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()

    def run(self, verb: str, *arguments: str) -> str:
        """The output of `outrigger batch VERB` about this job. Raises CalledProcessError."""
        command = [outrigger(), "batch", verb, str(self.output), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def status(self) -> dict[str, Any]:
        """The state of the job."""
        return json.loads(self.run("status", "-o", "json"))
