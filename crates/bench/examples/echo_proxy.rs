//! A minimal proxy in front of an engine: tonic's server and tonic's channel with their
//! defaults, which pass on the undecoded bytes of a message. The control plane's cost per
//! request is compared with this proxy's.
//!
//! Arguments: the address to listen on and the engine's endpoint, for example
//! `127.0.0.1:9000 unix:/run/outrigger/engine.sock`.

use std::{
    convert::Infallible,
    env,
    error::Error,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::uri::PathAndQuery;
use outrigger_proto::raw::RawCodec;
use tonic::{
    Request, Response, Status,
    body::Body,
    client,
    codegen::{BoxFuture, Service},
    server::{self, NamedService, UnaryService},
    transport::{Channel, Endpoint, Server},
};

/// The same allocator as the control plane's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [listen, engine] = &arguments[..] else {
        return Err("echo_proxy LISTEN ENGINE".into());
    };
    let channel = Endpoint::from_shared(engine.clone())?.connect().await?;
    Server::builder().add_service(Proxy(channel)).serve(listen.parse()?).await?;
    Ok(())
}

/// Forwards every method of the prediction service.
#[derive(Debug, Clone)]
struct Proxy(Channel);

impl NamedService for Proxy {
    const NAME: &'static str = "tensorflow.serving.PredictionService";
}

impl Service<http::Request<Body>> for Proxy {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let path = request.uri().path_and_query().cloned();
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        let method = Method { channel: self.0.clone(), path };
        Box::pin(async { Ok(server::Grpc::new(RawCodec).unary(method, request).await) })
    }
}

/// One forwarded method.
struct Method {
    channel: Channel,
    path: PathAndQuery,
}

impl UnaryService<Bytes> for Method {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let mut engine = client::Grpc::new(self.channel.clone());
        let (path, message) = (self.path.clone(), Request::new(request.into_inner()));
        Box::pin(async move {
            let ready = engine.ready().await;
            ready.map_err(|error| Status::unavailable(error.to_string()))?;
            engine.unary(message, path, RawCodec).await
        })
    }
}
