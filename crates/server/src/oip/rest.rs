//! The protocol over HTTP, under `/v2`.

mod answers;
mod infer;

use std::sync::Arc;

use axum::{
    Extension, Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderName, HeaderValue, Method as HttpMethod, StatusCode, header::ALLOW},
    response::Response,
};
use outrigger_core::{Failure, Reason};
use outrigger_oip::{
    metadata::IndexRequest,
    rest::{ModelPath, OfModel, Resource, Verb},
};

use self::answers::{document, model_ready, server_live, server_ready, statistics};
use super::{states::States, version::Target};
use crate::{
    call::Call,
    failure,
    front::{Front, Method, Path, Route},
    grpc::QUESTION,
    guard::Guard,
    http::{self, Documents},
};

/// The front of REST.
pub(crate) static REST: Front = Front {
    name: "oip_http",
    index: 5,
    routes: &[
        infer_route("/infer"),
        infer_route("/infer/"),
        question(Path::Verb(MODELS, "/ready")),
        question(Path::Verb(MODELS, "/ready/")),
        question(Path::Verb(MODELS, "/stats")),
        question(Path::Verb(MODELS, "/stats/")),
        question(Path::Exact("/v2/models/stats")),
        question(Path::Exact("/v2/models/stats/")),
        // Metadata are those of a version, which may have to be loaded.
        Route {
            path: Path::Under(MODELS),
            ..Route::compute("", Method::Metadata, "GET /v2/models/NAME")
        },
        question(Path::Under("/v2/repository/")),
        Route::open("/v2/health/"),
        open("/v2"),
        open("/v2/"),
    ],
    timeout: http::TIMEOUT,
    respond: |failure| failure::to_rest_as(failure::http_status(failure), failure),
    foreign: |_| None,
    streams: false,
    rpc_system: None,
    latency: None,
};

/// The prefix of the paths of models.
const MODELS: &str = "/v2/models/";

/// The header that repeats the request's id in a failed response, whose body has no room for it.
const REQUEST_ID: HeaderName = HeaderName::from_static("outrigger-request-id");

const fn infer_route(end: &'static str) -> Route {
    let path = Path::Verb(MODELS, end);
    Route { path, ..Route::compute("", Method::Predict, "POST /v2/models/NAME/infer") }
}

const fn question(path: Path) -> Route {
    Route::read(path, Method::Models, "GET /v2/models")
}

const fn open(path: &'static str) -> Route {
    Route { path: Path::Exact(path), ..Route::open(path) }
}

#[derive(Clone)]
struct App {
    documents: Documents,
    states: States,
}

/// The routes under `/v2`.
pub(super) fn routes(documents: Documents, states: States, rules: Arc<Guard>) -> Router {
    http::guarded(answer, App { documents, states }, rules)
}

async fn answer(
    State(app): State<App>,
    Extension(call): Extension<Call>,
    request: Request,
) -> Response {
    let resource = match find(&request) {
        Ok(resource) => resource,
        Err(unknown) => return unknown.respond(&call),
    };
    let answered = answered(&app, &call, request, resource).await;
    let id = call.request_id().filter(|id| answered.is_err() && !id.is_empty());
    let id = id.and_then(|id| HeaderValue::from_str(id).ok());
    let mut response = app.documents.conclude(&call, answered, failure::to_rest_as);
    if let Some(id) = id {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// A path or a method that does not exist here.
struct Unknown {
    status: StatusCode,
    failure: Failure,
    /// The methods that the path takes.
    allowed: Option<&'static str>,
}

impl Unknown {
    fn respond(self, call: &Call) -> Response {
        call.failed(&self.failure);
        let mut response = failure::to_rest_as(self.status, &self.failure);
        if let Some(allowed) = self.allowed {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        }
        response
    }
}

/// The resource of a request, if it exists and takes the request's method.
fn find(request: &Request) -> Result<Resource, Unknown> {
    let resource = Resource::parse(request.uri().path()).ok_or_else(|| Unknown {
        status: StatusCode::NOT_FOUND,
        failure: Failure::new(
            Reason::MethodUnknown,
            "no such path; there are /v2, /v2/health/live and /ready, /v2/repository/index, \
             /v2/models/stats, and /v2/models/NAME[/versions/VERSION] without an end, or with \
             /ready, /infer or /stats",
        ),
        allowed: None,
    })?;
    let not_allowed = |failure, allowed| Unknown {
        status: StatusCode::METHOD_NOT_ALLOWED,
        failure,
        allowed: Some(allowed),
    };
    if matches!(resource, Resource::Load(_) | Resource::Unload(_)) {
        let message = "models are loaded and unloaded over gRPC on the listener server.admin, by \
                       RepositoryModelLoad and RepositoryModelUnload of inference.GRPCInferenceService";
        return Err(not_allowed(Failure::new(Reason::AdminOnly, message), ""));
    }
    let (allowed, is_allowed) = match (resource.verb(), request.method()) {
        (Verb::Get, &HttpMethod::GET | &HttpMethod::HEAD) => ("GET, HEAD", true),
        (Verb::Get, _) => ("GET, HEAD", false),
        (Verb::Post, method) => ("POST", *method == HttpMethod::POST),
    };
    if is_allowed {
        return Ok(resource);
    }
    let message = format!("the path takes {allowed}");
    Err(not_allowed(Failure::new(Reason::MethodUnknown, message), allowed))
}

async fn answered(
    app: &App,
    call: &Call,
    request: Request,
    resource: Resource,
) -> Result<Response, Failure> {
    let states = &app.states;
    match resource {
        Resource::Server => Ok(document(&states.server())),
        Resource::Live => Ok(server_live()),
        Resource::Ready => Ok(server_ready(states.is_ready())),
        Resource::Index => index(app, request.into_body()).await,
        Resource::Statistics => statistics(app, ModelPath::default()).await,
        Resource::Model(model, OfModel::Ready) => {
            let is_ready = states.is_model_ready(target(&model))?;
            Ok(model_ready(model.name, is_ready))
        }
        Resource::Model(model, OfModel::Metadata) => {
            Ok(document(&states.model(call, target(&model)).await?))
        }
        Resource::Model(model, OfModel::Statistics) => statistics(app, model).await,
        Resource::Model(model, OfModel::Infer) => {
            infer::infer(&app.documents, call, request, model).await
        }
        Resource::Load(_) | Resource::Unload(_) => {
            Err(Failure::new(Reason::Internal, "a path was not refused"))
        }
    }
}

fn target(model: &ModelPath) -> Target<'_> {
    Target { model: &model.name, version: model.version.as_deref().unwrap_or_default() }
}

/// Answers with the index of the models. The body may be empty.
async fn index(app: &App, body: Body) -> Result<Response, Failure> {
    let malformed = |message: String| Failure::new(Reason::RequestMalformed, message);
    let body = to_bytes(body, QUESTION).await;
    let body = body.map_err(|error| malformed(format!("the body cannot be read: {error}")))?;
    let IndexRequest { ready } = match body.trim_ascii() {
        b"" => IndexRequest::default(),
        text => serde_json::from_slice(text)
            .map_err(|error| malformed(format!("the body is no request: {error}")))?,
    };
    let states = app.states.clone();
    app.documents.predictor().heavy().run(async move { Ok(document(&states.index(ready))) }).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Right;

    fn method(path: &str) -> Method {
        REST.route(path).method
    }

    #[test]
    fn every_resource_that_computes_has_a_route_that_does() {
        for name in ["m", "a/b", "ready", "infer", "versions", "m/versions/7"] {
            for end in ["", "/"] {
                assert_eq!(method(&format!("/v2/models/{name}/infer{end}")), Method::Predict);
                assert_eq!(method(&format!("/v2/models/{name}{end}")), Method::Metadata, "{name}");
                for other in ["ready", "stats"] {
                    let path = format!("/v2/models/{name}/{other}{end}");
                    assert_eq!(method(&path), Method::Models, "{path}");
                }
            }
        }
    }

    #[test]
    fn probes_need_no_right_and_models_do() {
        for path in ["/v2", "/v2/", "/v2/health/live", "/v2/health/ready/"] {
            assert_eq!(REST.route(path).right, None, "{path}");
        }
        for path in ["/v2/repository/index", "/v2/models/stats", "/v2/models/m/ready", "/v2x"] {
            assert_eq!(REST.route(path).right, Some(Right::Read), "{path}");
        }
        for path in ["/v2/models/m/infer", "/v2/models/m"] {
            assert_eq!(REST.route(path).right, Some(Right::Predict), "{path}");
        }
    }

    fn refused(method: &str, path: &str) -> (u16, Option<&'static str>) {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let unknown = find(&request).expect_err("refused");
        (unknown.status.as_u16(), unknown.allowed)
    }

    #[test]
    fn other_paths_and_methods_are_refused() {
        assert_eq!(refused("GET", "/v2/models"), (404, None));
        assert_eq!(refused("GET", "/v1/models/m"), (404, None));
        assert_eq!(refused("GET", "/v2/models/m/infer"), (405, Some("POST")));
        assert_eq!(refused("POST", "/v2/models/m"), (405, Some("GET, HEAD")));
        assert_eq!(refused("DELETE", "/v2"), (405, Some("GET, HEAD")));
        assert_eq!(refused("POST", "/v2/repository/models/m/load"), (405, Some("")));
    }
}
