//! What stands before every handler: deadline, rights, admission, a net for panics, and
//! the counting of calls.

mod stream;

#[cfg(test)]
mod tests;

use std::{panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, Request as HttpRequest},
    middleware::Next,
    response::Response,
};
use futures::FutureExt as _;
use outrigger_core::{Failure, Reason};
use outrigger_net::timeout_at;
use outrigger_trace::{Span, Tracer};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use crate::{
    admission::Admission,
    audit::{Record, Target, Verb},
    auth::{self, Auth},
    call::{Call, Method, Surface},
    caller::{Caller, Party, Peer},
    config::Rights,
    failure,
    limits::Limit,
    metrics,
};

/// The header by which a caller over HTTP says how long it waits: `250ms`, `2s`.
pub(crate) const TIMEOUT_HEADER: &str = "x-request-timeout";

/// Beyond this a deadline is none, and adding it to the clock stays safe.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The rules of one listener.
pub(crate) struct Guard {
    /// What the listener speaks.
    pub(crate) surface: Surface,
    /// For calls without a deadline.
    pub(crate) default_deadline: Duration,
    /// Who may do what.
    pub(crate) auth: Auth,
    /// Places for calls that compute, shared by all listeners.
    pub(crate) admission: Admission,
    /// How many of them one caller may have.
    pub(crate) per_caller: Limit<Party>,
    /// Decides which calls are traced.
    pub(crate) tracer: Tracer,
    /// Ends answers that would go on for ever.
    pub(crate) stop: CancellationToken,
}

/// The guard before the handlers of a router. They find the [`Call`] among the
/// request's extensions.
pub(crate) async fn guard(
    State(guard): State<Arc<Guard>>,
    request: Request,
    next: Next,
) -> Response {
    let peer = Peer::of(request.extensions());
    let method = Method::of(guard.surface, request.uri().path());
    let handled = guard.call(method, peer, request, async |call, mut request| {
        request.extensions_mut().insert(call.clone());
        let response = next.run(request).await;
        // Handlers note on the call how it ended; what they noted stays.
        Ok(guard.ending(method, guard.own_words(call, method, response)))
    });
    handled.await.unwrap_or_else(|failure| guard.respond(&failure))
}

impl Guard {
    /// Has one request of `peer` for `method` handled as a call: by its deadline, and
    /// whatever the handler does.
    ///
    /// From the outside in: the call is counted when everything else is over; the
    /// deadline covers the reading of the body too, so that a slow sender cannot
    /// hold a place for ever; rights and admission come before the body is read, because
    /// the body is what takes memory; the net for panics is next to the handler.
    ///
    /// # Errors
    /// The handler's, and what the guard refuses or cuts off.
    pub(crate) async fn call<B, T>(
        &self,
        method: Method,
        peer: Peer,
        request: HttpRequest<B>,
        handler: impl AsyncFnOnce(&Call, HttpRequest<B>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let started = Instant::now();
        let allowed = self.allowance(request.headers());
        let deadline = started + allowed.as_ref().copied().unwrap_or(self.default_deadline);
        let span = self.span(method, request.headers());
        let call = Call::begin(self.surface, method, started, deadline, span);
        let result = match allowed {
            Ok(_) => self.handled(&call, method, peer, request, handler).await,
            Err(failure) => Err(failure),
        };
        match &result {
            Ok(_) => call.answered(),
            Err(failure) => call.failed(failure),
        }
        result
    }

    async fn handled<B, T>(
        &self,
        call: &Call,
        method: Method,
        peer: Peer,
        request: HttpRequest<B>,
        handler: impl AsyncFnOnce(&Call, HttpRequest<B>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let caller = self.admit(method, peer, &request)?;
        if method.computes() {
            let share = self.per_caller.enter(|| caller.party())?;
            call.seat(self.admission.enter()?, share);
        }
        call.made_by(caller);
        let _counted = metrics::in_flight(method);
        let handler = pin!(AssertUnwindSafe(handler(call, request)).catch_unwind());
        match timeout_at(call.deadline(), handler).await {
            Err(_) => Err(Failure::new(Reason::Deadline, "the caller's deadline passed")),
            Ok(Err(_panic)) => {
                metrics::panicked(method);
                Err(Failure::new(Reason::Internal, "a defect in the server; its log has more"))
            }
            Ok(Ok(result)) => result,
        }
    }

    /// Who calls, if they may. Whether they may change something is asked by the
    /// handler, once it knows for the record what.
    fn admit<B>(
        &self,
        method: Method,
        peer: Peer,
        request: &HttpRequest<B>,
    ) -> Result<Caller, Failure> {
        let path = request.uri().path();
        let verb = Verb::of(path);
        let caller = self.auth.caller(&peer, request.headers());
        match (caller, verb) {
            (Ok(caller), Some(_)) => Ok(caller),
            (Ok(caller), None) => match auth::needed(method, path) {
                None => Ok(caller),
                Some(right) => caller.may(right).map(|()| caller),
            },
            (Err(failure), None) => Err(failure),
            (Err(failure), Some(verb)) => {
                let stranger = Caller::new(peer, Rights::default());
                let refused = Err(failure);
                Record::new(stranger, verb, Target::default()).end(&refused);
                refused
            }
        }
    }

    /// Health and reflection are asked too often to be of interest.
    fn span(&self, method: Method, headers: &HeaderMap) -> Span {
        match method {
            Method::Other => Span::none(),
            method => self.tracer.request(method.span(self.surface), headers),
        }
    }

    /// How long the caller waits.
    fn allowance(&self, headers: &HeaderMap) -> Result<Duration, Failure> {
        let (name, parse): (_, fn(&str) -> Option<Duration>) = match self.surface {
            Surface::Grpc => ("grpc-timeout", grpc_timeout),
            Surface::Http => (TIMEOUT_HEADER, |text| humantime::parse_duration(text).ok()),
        };
        let Some(value) = headers.get(name) else { return Ok(self.default_deadline) };
        let parsed = value.to_str().ok().and_then(parse);
        let invalid = || Failure::new(Reason::RequestMalformed, format!("{name} cannot be read"));
        Ok(parsed.ok_or_else(invalid)?.min(LONGEST))
    }

    /// Lets answers of unknown length end with the server.
    fn ending(&self, method: Method, response: Response) -> Response {
        if method.computes() || self.surface == Surface::Http {
            return response;
        }
        response.map(|body| stream::UntilStop::wrap(body, &self.stop))
    }

    fn respond(&self, failure: &Failure) -> Response {
        match self.surface {
            Surface::Grpc => failure::to_status(failure).into_http::<Body>(),
            Surface::Http => failure::to_http(failure),
        }
    }

    /// Gives tonic's own statuses a reason: they are about how a message
    /// arrived, and never reached a handler.
    fn own_words(&self, call: &Call, method: Method, response: Response) -> Response {
        let Some(status) = bare_status(self.surface, response.headers()) else {
            call.answered();
            return response;
        };
        if method == Method::Other && status.code() != Code::Unimplemented {
            // Health and reflection follow protocols of their own.
            call.answered();
            return response;
        }
        let failure = failure::of_transport(status.code(), status.message());
        call.failed(&failure);
        self.respond(&failure)
    }
}

/// The status of a response that failed without details: not one of ours.
fn bare_status(surface: Surface, headers: &HeaderMap) -> Option<Status> {
    if surface != Surface::Grpc || headers.contains_key("grpc-status-details-bin") {
        return None;
    }
    Status::from_header_map(headers).filter(|status| status.code() != Code::Ok)
}

/// A `grpc-timeout`: at most eight digits and a unit, by the protocol's text.
fn grpc_timeout(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let digits = &text[..text.len() - unit.len_utf8()];
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(count * 3600),
        'M' => Duration::from_secs(count * 60),
        'S' => Duration::from_secs(count),
        'm' => Duration::from_millis(count),
        'u' => Duration::from_micros(count),
        'n' => Duration::from_nanos(count),
        _ => return None,
    })
}
