//! The reference page of all reasons, generated from the table.

use std::fmt::Write as _;

use outrigger_core::{Code, Reason, Retry};

const INTRODUCTION: &str = "\
# Errors

This page is generated from the code: `outrigger serve --print-reference errors`.

Every failure has a reason from this table. The names are stable; messages are for people and may
change.

- gRPC: a `google.rpc.Status` with the code below and an `ErrorInfo` of domain `outrigger.dev` that
  holds the reason. Invalid input adds `BadRequest` with the invalid fields: of invalid features the
  first ten, else the first field. If they do not fit into headers, the metadata entry `violations_omitted` has the number of missing ones. Failures that
  can be retried add `RetryInfo`.
- HTTP: the status below and `{\"error\": {\"reason\", \"message\", \"details\"}}`, where `details` may have
  `violations` (`field`, `description`) and `retry_after_ms`; the latter also as `Retry-After`.

\"with backoff\": the same request may succeed later; retry with growing delays. \"after the delay\":
the answer has the delay. \"later\": only after space was freed.

| reason | gRPC | HTTP | retry | meaning |
|---|---|---|---|---|
";

/// The reference page of the errors, Markdown.
pub fn reference_markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    for reason in Reason::ALL {
        writeln!(
            page,
            "| `{reason}` | {} | {} | {} | {} |",
            code_name(reason.code()),
            reason.code().http_status(),
            retry_name(reason.retry()),
            reason.description().trim(),
        )
        .expect("writing to a string");
    }
    page
}

fn code_name(code: Code) -> &'static str {
    match code {
        Code::Cancelled => "CANCELLED",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unauthenticated => "UNAUTHENTICATED",
        Code::Unavailable => "UNAVAILABLE",
    }
}

fn retry_name(retry: Retry) -> &'static str {
    match retry {
        Retry::Never => "no",
        Retry::Backoff => "with backoff",
        Retry::AfterDelay => "after the delay",
        Retry::Later => "later",
    }
}
