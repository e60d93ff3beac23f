//! The guard before every handler: deadline, rights, admission, recovery from panics, and the count
//! of calls.

mod stream;

#[cfg(test)]
mod tests;

use std::{panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, Request as HttpRequest, Version},
    middleware::Next,
    response::Response,
};
use futures::FutureExt as _;
use outrigger_console::Site;
use outrigger_core::{Failure, Reason};
use outrigger_net::timeout_at;
use outrigger_trace::{Span, Tracer};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use crate::{
    audit::{Record, Target},
    auth::Auth,
    call::Call,
    caller::{Caller, Peer},
    config::Rights,
    failure,
    front::{Front, Method, Route, Timeout},
    held, metrics,
    priority::Priority,
    request_limits::RequestLimits,
};

/// The longest deadline. The bound keeps the addition to the clock from overflowing.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The rules for the calls of one listener.
pub(crate) struct Guard {
    /// The protocol of the listener.
    pub(crate) front: &'static Front,
    /// The deadline of calls that set none, if it differs from that of predictions.
    pub(crate) default_deadline: Option<Duration>,
    /// The rights of callers.
    pub(crate) auth: Auth,
    /// The addresses of the listener, for requests that a browser sends.
    pub(crate) site: Site,
    /// The limits of requests, shared by all listeners.
    pub(crate) limits: RequestLimits,
    /// Decides whether a call is traced.
    pub(crate) tracer: Tracer,
    /// Cancelled when the server stops; ends streams.
    pub(crate) stop: CancellationToken,
}

/// Runs the guard before the handlers of a router. Handlers find the [`Call`] in the request's
/// extensions.
pub(crate) async fn guard(
    State(guard): State<Arc<Guard>>,
    request: Request,
    next: Next,
) -> Response {
    let peer = Peer::of(request.extensions());
    let route = guard.front.route(request.uri().path());
    let handled = guard.call(route, peer, request, async |call, mut request| {
        request.extensions_mut().insert(call.clone());
        let response = next.run(request).await;
        // Handlers record the outcome on the call; an outcome recorded here later does not replace
        // it.
        let response = guard.own_words(call, route.method, response);
        Ok(match route.method.computes() {
            true => response.map(|body| held::holding(body, call.held())),
            false => guard.ending(response),
        })
    });
    handled.await.unwrap_or_else(|failure| (guard.front.respond)(&failure))
}

impl Guard {
    /// Handles one request of `peer` for `route` as a call, within its deadline, and survives a
    /// panic of the handler.
    ///
    /// The order from the outside in: the call is counted when everything else is over; the
    /// deadline covers the reading of the body too, so that a slow sender cannot hold a place for
    /// ever; rights and admission come before the body is read, because the body takes the memory,
    /// and a call that waits for its turn leaves its body with the sender; recovery from panics is
    /// next to the handler.
    ///
    /// # Errors
    /// The handler's failure, or the guard's own when it refuses or cuts off the call.
    pub(crate) async fn call<B, T>(
        &self,
        route: &'static Route,
        peer: Peer,
        request: HttpRequest<B>,
        handler: impl AsyncFnOnce(&Call, HttpRequest<B>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let started = Instant::now();
        let allowed = self.allowance(request.headers());
        let deadline =
            started + allowed.as_ref().copied().unwrap_or_else(|_| self.default_deadline());
        let span = route.span.map(|name| self.tracer.request(name, request.headers()));
        let span = span.unwrap_or_else(Span::none);
        let call = Call::begin(self.front, route.method, started, deadline, span);
        let result = match allowed {
            Ok(_) => self.handled(&call, route, peer, request, handler).await,
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
        route: &Route,
        peer: Peer,
        request: HttpRequest<B>,
        handler: impl AsyncFnOnce(&Call, HttpRequest<B>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let method = route.method;
        call.made_by(self.admit(route, peer, &request)?);
        let counted = match method.computes() {
            true => {
                let priority = Priority::of(request.headers())?;
                self.limits.seat(call, method, priority).await?;
                None
            }
            false => Some(metrics::in_flight(method)),
        };
        let handler = pin!(AssertUnwindSafe(handler(call, request)).catch_unwind());
        let handled = timeout_at(call.deadline(), handler).await;
        drop(counted);
        match handled {
            Err(_) => Err(Failure::new(Reason::Deadline, "the caller's deadline passed")),
            Ok(Err(_panic)) => {
                metrics::panicked(method);
                Err(Failure::new(Reason::Internal, "a defect in the server; its log has more"))
            }
            Ok(Ok(result)) => result,
        }
    }

    /// Identifies the caller and checks its right to call. The handler checks the right to a
    /// change, because only the handler knows what is changed, which the record of changes needs.
    fn admit<B>(
        &self,
        route: &Route,
        peer: Peer,
        request: &HttpRequest<B>,
    ) -> Result<Caller, Failure> {
        let site = self.site.check(request);
        let Some(verb) = route.change else {
            let caller = site.and_then(|()| self.auth.caller(&peer, request.headers()))?;
            return match route.right {
                None => Ok(caller),
                Some(right) => caller.may(right).map(|()| caller),
            };
        };
        let caller = site
            .and_then(|()| over_http2(request))
            .and_then(|()| self.auth.caller(&peer, request.headers()));
        if caller.is_err() {
            let stranger = Caller::new(peer, Rights::default());
            Record::new(stranger, verb, Target::default()).end(&caller);
        }
        caller
    }

    fn default_deadline(&self) -> Duration {
        self.default_deadline.unwrap_or_else(|| self.limits.default_deadline())
    }

    /// The time that the caller waits, or the default.
    fn allowance(&self, headers: &HeaderMap) -> Result<Duration, Failure> {
        let Timeout { header, read } = self.front.timeout;
        let Some(value) = headers.get(header) else { return Ok(self.default_deadline()) };
        let parsed = value.to_str().ok().and_then(read);
        let invalid = || Failure::new(Reason::RequestMalformed, format!("{header} cannot be read"));
        Ok(parsed.ok_or_else(invalid)?.min(LONGEST))
    }

    /// Wraps streamed answers so that they end when the server stops.
    fn ending(&self, response: Response) -> Response {
        match self.front.streams {
            true => response.map(|body| stream::UntilStop::wrap(body, &self.stop)),
            false => response,
        }
    }

    /// Gives tonic's own statuses a reason. They concern the arrival of a message that never
    /// reached a handler.
    fn own_words(&self, call: &Call, method: Method, response: Response) -> Response {
        let Some(status) = (self.front.foreign)(response.headers()) else {
            call.answered();
            return response;
        };
        if method == Method::Other && status.code() != Code::Unimplemented {
            // Health and reflection have protocols of their own, so their statuses stay unchanged.
            call.answered();
            return response;
        }
        let failure = failure::of_transport(status.code(), status.message());
        call.failed(&failure);
        (self.front.respond)(&failure)
    }
}

/// Refuses a change over HTTP/1. gRPC clients use HTTP/2 without TLS too, which no browser does.
fn over_http2<B>(request: &HttpRequest<B>) -> Result<(), Failure> {
    if request.version() == Version::HTTP_2 {
        return Ok(());
    }
    let message = "changes are made over HTTP/2, as gRPC clients speak it";
    Err(Failure::new(Reason::PermissionDenied, message))
}
