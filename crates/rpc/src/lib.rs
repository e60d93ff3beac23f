//! Client connections for gRPC over HTTP/2, and unary calls on them.
//!
//! - [`Calls`] makes unary calls directly on h2's streams: the message is sent from the
//!   buffers it was written to, and the answer is read from the frames it came in.
//! - [`HttpService`] is for generated tonic clients, whose calls are rare.
//!
//! Both keep a set of connections that reconnect by themselves, and spread calls over them
//! by runtime and by load. [`Dial`] makes the byte stream of a connection: an [`Endpoint`] is
//! TCP or a Unix socket without TLS.

mod answer;
mod calls;
mod connection;
mod dial;
mod endpoint;
mod error;
mod head;
mod http2;
pub mod metrics;
mod observer;
mod places;
mod pool;
mod room;
mod service;
mod settings;

pub use self::{
    answer::status_of_http,
    calls::Calls,
    dial::{Dial, Plain},
    endpoint::{Endpoint, InvalidEndpoint},
    error::{CallError, TransportError},
    head::Head,
    observer::Observer,
    places::{Held, Kept, NoPlace, Place, Places, Share},
    room::Room,
    service::HttpService,
    settings::{Http2, Settings},
};
