//! What stands before every handler: deadline, rights, admission, a net for panics, and
//! the counting of calls.

mod stream;

#[cfg(test)]
mod tests;

use std::{panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use axum::{
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
use tonic::Code;

use crate::{
    admission::Admission,
    audit::{Record, Target},
    auth::Auth,
    call::Call,
    caller::{Caller, Party, Peer},
    config::Rights,
    failure,
    front::{Front, Method, Route, Timeout},
    limits::Limit,
    metrics,
};

/// Beyond this a deadline is none, and adding it to the clock stays safe.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The rules of one listener.
pub(crate) struct Guard {
    /// The protocol of the listener.
    pub(crate) front: &'static Front,
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
    let route = guard.front.route(request.uri().path());
    let handled = guard.call(route, peer, request, async |call, mut request| {
        request.extensions_mut().insert(call.clone());
        let response = next.run(request).await;
        // Handlers note on the call how it ended; what they noted stays.
        Ok(guard.ending(route.method, guard.own_words(call, route.method, response)))
    });
    handled.await.unwrap_or_else(|failure| (guard.front.respond)(&failure))
}

impl Guard {
    /// Has one request of `peer` for `route` handled as a call: by its deadline, and
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
        route: &'static Route,
        peer: Peer,
        request: HttpRequest<B>,
        handler: impl AsyncFnOnce(&Call, HttpRequest<B>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let started = Instant::now();
        let allowed = self.allowance(request.headers());
        let deadline = started + allowed.as_ref().copied().unwrap_or(self.default_deadline);
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
        let caller = self.admit(route, peer, request.headers())?;
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

    /// The caller, if it may call. Whether it may change something is asked by the
    /// handler, once it knows for the record what.
    fn admit(&self, route: &Route, peer: Peer, headers: &HeaderMap) -> Result<Caller, Failure> {
        match (self.auth.caller(&peer, headers), route.change) {
            (Ok(caller), Some(_)) => Ok(caller),
            (Ok(caller), None) => match route.right {
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

    /// How long the caller waits.
    fn allowance(&self, headers: &HeaderMap) -> Result<Duration, Failure> {
        let Timeout { header, read } = self.front.timeout;
        let Some(value) = headers.get(header) else { return Ok(self.default_deadline) };
        let parsed = value.to_str().ok().and_then(read);
        let invalid = || Failure::new(Reason::RequestMalformed, format!("{header} cannot be read"));
        Ok(parsed.ok_or_else(invalid)?.min(LONGEST))
    }

    /// Lets answers of unknown length end with the server.
    fn ending(&self, method: Method, response: Response) -> Response {
        if method.computes() || !self.front.streams {
            return response;
        }
        response.map(|body| stream::UntilStop::wrap(body, &self.stop))
    }

    /// Gives tonic's own statuses a reason: they are about how a message
    /// arrived, and never reached a handler.
    fn own_words(&self, call: &Call, method: Method, response: Response) -> Response {
        let Some(status) = (self.front.foreign)(response.headers()) else {
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
        (self.front.respond)(&failure)
    }
}
