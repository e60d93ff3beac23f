//! Clients, requests and answers of the tests.

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use outrigger_oip::{DataType, Tensor};
use outrigger_oip_client::{Backoff, Client, Config, Failure, HostConfig, Reply, Request};
use outrigger_testkit::oip::{Answer, Protocol, Seen, Server};
use tokio::{runtime::Handle, time::Instant};

/// Long enough for any answer that comes.
const LONG: Duration = Duration::from_secs(60);

pub(crate) fn config(servers: &[&Server]) -> Config {
    let hosts = servers.iter().map(|server| HostConfig::new(server.address())).collect();
    let pause = Duration::from_millis(1);
    Config { backoff: Backoff { first: pause, most: pause }, ..Config::new(hosts) }
}

pub(crate) fn client(servers: &[&Server]) -> Client {
    connect(config(servers))
}

pub(crate) fn connect(config: Config) -> Client {
    Client::new(config, &[Handle::current()]).expect("a valid configuration")
}

/// A server over HTTP/1.1, and a client of it.
pub(crate) async fn rest(
    script: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
) -> (Server, Client) {
    let server = Server::start(Protocol::Http1, script).await;
    let client = client(&[&server]);
    (server, client)
}

/// A server over gRPC, and a client of it.
pub(crate) async fn grpc(
    script: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
) -> (Server, Client) {
    let server = Server::start(Protocol::Http2, script).await;
    let client = client(&[&server]);
    (server, client)
}

pub(crate) fn tensor(name: &str, shape: &[i64], values: &[f32]) -> Tensor {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let (name, shape) = (name.into(), shape.to_vec());
    Tensor { name, datatype: DataType::Fp32, shape, data: data.into() }
}

/// A request of rows of one number, for the model `m`.
pub(crate) fn request(values: &[f32]) -> Request {
    of(vec![tensor("x", &[values.len() as i64, 1], values)])
}

/// A request for the outputs of the inputs.
pub(crate) fn of(inputs: Vec<Tensor>) -> Request {
    let rows = inputs[0].shape.first().map(|rows| *rows as u64);
    Request {
        model: "m".into(),
        version: None,
        outputs: inputs.iter().map(|input| format!("OUT_{}", input.name).into()).collect(),
        inputs,
        rows,
        row_by_row: false,
        deadline: Instant::now() + LONG,
        headers: HeaderMap::new(),
    }
}

pub(crate) fn soon() -> Instant {
    Instant::now() + LONG
}

/// The numbers of the first output.
pub(crate) fn values(reply: &Reply) -> Vec<f32> {
    let data = reply.outputs[0].data.as_chunks().0;
    data.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

pub(crate) async fn fault(client: &Client) -> Failure {
    client.infer(&request(&[1.0, 2.0])).await.expect_err("a failure")
}

pub(crate) fn named(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|name| (*name).into()).collect()
}
