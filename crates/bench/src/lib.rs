//! A load generator that measures a server's throughput, latency and cost.
//!
//! Requests are encoded before the run. In an open loop each request is due at a fixed
//! time, independent of earlier ones, and its latency counts from that time: a server
//! that stalls is charged for the requests that would have come meanwhile (this avoids
//! "coordinated omission"). The same requests can be sent to the control plane in each of
//! its forms, or as tensors to TensorFlow Serving and to servers of the Open Inference Protocol.

mod answer;
mod arrivals;
mod client;
mod cores;
mod cpu;
mod error;
mod failure;
mod find_rate;
mod grpc;
mod http1;
mod inference;
mod job;
mod measure;
mod message;
mod method;
mod outgoing;
mod prepare;
mod progress;
mod report;
mod requests;
mod run;
mod search;
mod servable;
mod server;
mod stop;
mod stream;
mod tally;
mod timer;
mod worker;

/// An encoding of requests.
pub use outrigger_compression::Encoding;
/// A server's address.
pub use outrigger_rpc::Endpoint;

pub use self::{
    arrivals::Arrivals,
    cpu::Process,
    error::Error,
    failure::Failure,
    inference::{Inference, InferenceForm, Input},
    job::{Job, Load, Target},
    progress::{Figures, Observer, Progress},
    report::{Phase, Quantiles, Report, Settings, Step},
    requests::{Form, Shape, Source, read_plan},
    run::run,
    servable::Servable,
    server::{Server, Tls},
    stop::Stop,
};
