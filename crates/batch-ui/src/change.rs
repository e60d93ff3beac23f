//! Changes of a job's settings that the page sends.

use axum::{
    Json,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use outrigger_batch::{Control, Error, Store};
use serde::Deserialize;
use tokio::{
    task::spawn_blocking,
    time::{Duration, timeout},
};

use crate::{
    routes::App,
    token::{Refused, Token},
};

/// The most bytes of a request.
const LONGEST: usize = 64 << 10;
/// The time in which a request must arrive.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A change: settings in the form of `outrigger batch set`, or the end of the job.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Change {
    set: Vec<String>,
    cancel: bool,
}

impl Change {
    /// Changes the control object of a job. Blocks.
    fn apply(self, store: &Store) -> Result<Control, Error> {
        Control::change(store, |control| {
            control.cancelled |= self.cancel;
            self.set.iter().try_for_each(|setting| control.set(setting))
        })
    }
}

/// Answers a request to change settings, with the control object as it is then.
pub(crate) async fn change(State(app): State<App>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let change = match read(&head.headers, body).await {
        Ok(change) => change,
        Err((status, why)) => return refused(status, &why),
    };
    let changed = spawn_blocking(move || changed(&app, &head.headers, change)).await;
    match changed {
        Ok(Ok(control)) => Json(control).into_response(),
        Ok(Err((status, why))) => refused(status, &why),
        Err(_) => refused(StatusCode::INTERNAL_SERVER_ERROR, "the change failed"),
    }
}

/// Reads a request's change. Only pages of this listener can send JSON.
async fn read(headers: &HeaderMap, body: Body) -> Result<Change, (StatusCode, String)> {
    let kind = headers.get(CONTENT_TYPE).map_or(&[][..], |kind| kind.as_bytes());
    if kind != b"application/json" {
        let why = "a change is JSON: content-type: application/json";
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, why.to_owned()));
    }
    let late = |_| (StatusCode::REQUEST_TIMEOUT, "the request did not arrive".to_owned());
    let invalid = |why: String| (StatusCode::BAD_REQUEST, why);
    let body = timeout(TIMEOUT, to_bytes(body, LONGEST)).await.map_err(late)?;
    let body = body.map_err(|error| invalid(error.to_string()))?;
    serde_json::from_slice(&body).map_err(|error| invalid(error.to_string()))
}

/// Checks the token, and makes the change. Blocks.
fn changed(
    app: &App,
    headers: &HeaderMap,
    change: Change,
) -> Result<Control, (StatusCode, String)> {
    check(app.token(), headers)?;
    change.apply(app.store()).map_err(|error| match error {
        Error::Usage(why) => (StatusCode::BAD_REQUEST, why),
        other => (StatusCode::SERVICE_UNAVAILABLE, other.to_string()),
    })
}

fn check(token: &Token, headers: &HeaderMap) -> Result<(), (StatusCode, String)> {
    token.check(headers).map_err(|refused| match refused {
        Refused::Never(why) => (StatusCode::FORBIDDEN, why),
        Refused::Unknown => {
            (StatusCode::UNAUTHORIZED, "this is not the token of the job's token file".to_owned())
        }
    })
}

fn refused(status: StatusCode, why: &str) -> Response {
    (status, format!("{why}\n")).into_response()
}
