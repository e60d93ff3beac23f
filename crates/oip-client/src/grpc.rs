//! The protocol over gRPC, with raw contents.

use std::{sync::Arc, time::Duration};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::HeaderMap;
use outrigger_oip::{InferResponse, Parameters, grpc};
use outrigger_proto::{
    inference::ModelInferResponse,
    raw::unary::{PREFIX, Unreadable, prefix},
};
use outrigger_rpc::{CallError, Calls, Dial as _, Head, Settings};
use prost::Message;
use tokio::{runtime::Handle, time::Instant};

use crate::{Failure, dial::Dialer, message::Request, room::Room};

/// The connections to one host, and the heads of its calls.
pub(crate) struct Grpc {
    calls: Calls<Bytes>,
    infer: Head,
    /// The head of an inference in a place.
    infer_in: Head,
    live: Head,
    ready: Head,
    metadata: Head,
    load: Head,
    unload: Head,
    max_request: usize,
    max_answer: usize,
}

/// The methods other than ModelInfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    ServerLive,
    ModelReady,
    ModelMetadata,
    Load,
    Unload,
}

impl Grpc {
    pub(crate) fn new(
        dialer: &Dialer,
        settings: &Settings,
        runtimes: &[Handle],
        (max_request, max_answer): (usize, usize),
    ) -> Self {
        // A connection counts only after an answer in HTTP/2: the server may speak HTTP/1.
        let settings = Settings { confirm: true, ..*settings };
        let head = |path| Head::new(dialer.origin(), path);
        let infer = head("/inference.GRPCInferenceService/ModelInfer");
        Self {
            calls: Calls::new(dialer, &settings, runtimes, Arc::new(())),
            infer_in: infer.clone().with_overtime(),
            infer,
            live: head("/inference.GRPCInferenceService/ServerLive"),
            ready: head("/inference.GRPCInferenceService/ModelReady"),
            metadata: head("/inference.GRPCInferenceService/ModelMetadata"),
            load: head("/inference.GRPCInferenceService/RepositoryModelLoad"),
            unload: head("/inference.GRPCInferenceService/RepositoryModelUnload"),
            max_request,
            max_answer,
        }
    }

    /// Runs the model.
    pub(crate) async fn infer(
        &self,
        request: &Request,
        id: &str,
        (headers, room): (&HeaderMap, &Room<'_>),
    ) -> Result<InferResponse, Failure> {
        let (model, version) = (&*request.model, request.version.as_deref().unwrap_or_default());
        let message = request.message(id, Parameters::default());
        let message = grpc::write_request(message, model.to_owned(), version.to_owned());
        let head = if room.place.is_some() { &self.infer_in } else { &self.infer };
        let answer = self.call(head, &message, (request.deadline, headers), room).await?;
        room.take(grpc::response_memory(&answer).map_err(Failure::invalid)?)?;
        let answer = ModelInferResponse::decode(answer).map_err(Failure::invalid)?;
        grpc::read_response(answer).map_err(Failure::invalid)
    }

    /// Makes a call of another method.
    pub(crate) async fn control<A: Message + Default>(
        &self,
        method: Method,
        message: &impl Message,
        deadline: Instant,
        headers: &HeaderMap,
    ) -> Result<A, Failure> {
        let head = match method {
            Method::ServerLive => &self.live,
            Method::ModelReady => &self.ready,
            Method::ModelMetadata => &self.metadata,
            Method::Load => &self.load,
            Method::Unload => &self.unload,
        };
        let room = Room::new(self.max_answer, None);
        let answer = self.call(head, message, (deadline, headers), &room).await?;
        A::decode(answer).map_err(Failure::invalid)
    }

    async fn call(
        &self,
        head: &Head,
        message: &impl Message,
        (deadline, headers): (Instant, &HeaderMap),
        room: &Room<'_>,
    ) -> Result<Bytes, Failure> {
        let size = message.encoded_len();
        if size > self.max_request {
            return Err(Failure::too_large(size, self.max_request));
        }
        let mut framed = BytesMut::with_capacity(PREFIX + size);
        framed.put_slice(&prefix(size));
        message.encode(&mut framed).map_err(Failure::invalid)?;
        let head = || {
            let left = deadline.saturating_duration_since(Instant::now());
            (left > Duration::ZERO).then(|| head.within(left, headers))
        };
        let framed = framed.freeze();
        let answer = match room.place.clone() {
            Some(place) => self.calls.call_in(place, framed, room, head).await,
            None => self.calls.call(framed, room, head).await,
        };
        answer.map_err(|error| match error {
            CallError::Framing(Unreadable::NotAdmitted) => room.failure(),
            other => other.into(),
        })
    }
}
