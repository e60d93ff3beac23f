"""Errors of the control plane as a Python exception."""

from dataclasses import dataclass

import grpc
from google.rpc import error_details_pb2, status_pb2

_DETAILS = "grpc-status-details-bin"


@dataclass(frozen=True)
class Violation:
    """A violation of a field such as `treatments[3].features["discount"]`, with a description."""

    field: str
    description: str


class OutriggerError(Exception):
    """A call that failed.

    `code` is gRPC's; `reason` is the stable name from docs/errors.md, empty if the failure is not
    the control plane's, such as a refused connection.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        *,
        reason: str = "",
        violations: tuple[Violation, ...] = (),
        retry_after: float | None = None,
        metadata: dict[str, str] | None = None,
    ):
        super().__init__(f"{reason or code.name}: {message}")
        self.code = code
        self.message = message
        self.reason = reason
        self.violations = violations
        self.retry_after = retry_after
        self.metadata = metadata or {}

    @classmethod
    def from_rpc(cls, error: grpc.RpcError) -> "OutriggerError":
        """Reads google.rpc.Status and its details from the trailers of a failed call."""
        trailers = dict(error.trailing_metadata() or ())
        status = status_pb2.Status()
        if isinstance(blob := trailers.get(_DETAILS), bytes):
            status.ParseFromString(blob)
        info = _detail(status, error_details_pb2.ErrorInfo)
        request = _detail(status, error_details_pb2.BadRequest)
        retry = _detail(status, error_details_pb2.RetryInfo)
        return cls(
            code=error.code(),
            message=error.details() or "",
            reason=info.reason if info else "",
            violations=tuple(
                Violation(each.field, each.description)
                for each in (request.field_violations if request else ())
            ),
            retry_after=retry.retry_delay.ToTimedelta().total_seconds() if retry else None,
            metadata=dict(info.metadata) if info else None,
        )


def _detail(status: status_pb2.Status, kind: type):
    for packed in status.details:
        message = kind()
        if packed.Unpack(message):
            return message
    return None
