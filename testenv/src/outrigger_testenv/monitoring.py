"""Monitoring systems on loopback: a real Prometheus, and a collector of traces."""

import json
import threading
import urllib.parse
import urllib.request
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from outrigger_testenv.processes import Process, ProcessError


class Prometheus:
    """Debian's prometheus, scraping one target every second as the job "outrigger"."""

    def __init__(self, directory: Path, port: int, target: str):
        directory.mkdir(parents=True, exist_ok=True)
        self._url = f"http://127.0.0.1:{port}"
        scrape = {"job_name": "outrigger", "static_configs": [{"targets": [target]}]}
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [scrape],
        }
        # JSON is valid YAML.
        (directory / "prometheus.yml").write_text(json.dumps(config))
        command = [
            "prometheus",
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        self.process = Process("prometheus", command, directory / "prometheus.log")

    def __enter__(self) -> "Prometheus":
        self.process.start()
        self.process.wait_until(lambda: self._answers("/-/ready"))
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The instant vector of a PromQL expression: each element's labels and value."""
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self._url}/api/v1/query?{query}", timeout=10) as answer:
            found = json.load(answer)["data"]["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]

    def value(self, expression: str) -> float | None:
        """The value of an expression with one element; `None` while it has none."""
        match self.query(expression):
            case []:
                return None
            case [(_, value)]:
                return value
            case several:
                raise ValueError(f"{expression} gives {several}")

    def wait_for(self, expression: str, wanted: float, timeout: float = 30.0) -> None:
        """Waits until an expression has this value, which takes at least one scrape."""
        try:
            self.process.wait_until(lambda: self.value(expression) == wanted, timeout)
        except ProcessError as error:
            raise TimeoutError(f"{expression} is {self.value(expression)}") from error

    def _answers(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(self._url + path, timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False


@dataclass(frozen=True)
class Span:
    """A span with its resource; ids in hexadecimal digits."""

    name: str
    trace: str
    id: str
    parent: str
    kind: str
    attributes: dict[str, Any]
    error: str | None
    resource: dict[str, Any]


class Collector:
    """Receives spans by OTLP over gRPC, with OpenTelemetry's own messages."""

    def __init__(self) -> None:
        self._arrived = threading.Condition()
        self._spans: list[Span] = []

    def __enter__(self) -> "Collector":
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service

        class Servicer(service.TraceServiceServicer):
            Export = staticmethod(self._export)

        self._server = grpc.server(futures.ThreadPoolExecutor(1))
        service.add_TraceServiceServicer_to_server(Servicer(), self._server)
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None)

    def trace(self, name: str, timeout: float = 30.0) -> dict[str, Span]:
        """Waits for a span of this name, which must be the last of its trace; returns all spans of
        the trace by name.
        """
        with self._arrived:
            if not self._arrived.wait_for(lambda: self._find(name), timeout):
                raise TimeoutError(f"no span {name} in {[each.name for each in self._spans]}")
            trace = self._find(name).trace
            return {each.name: each for each in self._spans if each.trace == trace}

    def _find(self, name: str) -> Span | None:
        return next((each for each in self._spans if each.name == name), None)

    def _export(self, request: Any, _context: grpc.ServicerContext) -> Any:
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages

        with self._arrived:
            for part in request.resource_spans:
                resource = _attributes(part.resource.attributes)
                spans = (span for scope in part.scope_spans for span in scope.spans)
                self._spans += [_span(span, resource) for span in spans]
            self._arrived.notify_all()
        return messages.ExportTraceServiceResponse()


def _span(span: Any, resource: dict[str, Any]) -> Span:
    from opentelemetry.proto.trace.v1 import trace_pb2 as messages

    assert span.start_time_unix_nano <= span.end_time_unix_nano
    failed = span.status.code == messages.Status.STATUS_CODE_ERROR
    return Span(
        name=span.name,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        kind=messages.Span.SpanKind.Name(span.kind),
        attributes=_attributes(span.attributes),
        error=span.status.message if failed else None,
        resource=resource,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in pairs}
