//! Reads the message of a call, which may be compressed as gRPC's core library does.

use std::{
    fmt,
    io::{self, Read},
};

use bytes::Bytes;
use flate2::read::{GzDecoder, ZlibDecoder};
use http::{HeaderMap, Request, header::HeaderName};
use http_body_util::Full;
use hyper::body::{Body as HttpBody, Incoming};
use outrigger_proto::raw::unary::{self, Bounds, Compressed, Unreadable};
use tonic::{Code, body::Body};

use super::MESSAGE_LIMIT;
use crate::status::Status;

const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// An encoding of messages that TensorFlow Serving accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950.
    Deflate,
}

/// Reads the message of a call.
///
/// # Errors
/// INTERNAL for a body that is not one whole message, UNIMPLEMENTED for another encoding,
/// OUT_OF_RANGE for a message over the limit.
pub(super) async fn read<B>(headers: &HeaderMap, body: B) -> Result<Bytes, Status>
where
    B: HttpBody<Data = Bytes, Error: fmt::Display>,
{
    let encoding = Encoding::of(headers);
    let compressed = match encoding {
        Ok(Some(_)) => Compressed::Accepted,
        Ok(None) => Compressed::Undeclared,
        Err(()) => Compressed::Unsupported,
    };
    let bounds = Bounds { size: MESSAGE_LIMIT, compressed };
    let payload = unary::read_admitted(body, bounds, |_| true).await;
    let payload = payload.map_err(|unreadable| unread(&unreadable))?;
    match encoding {
        Ok(Some(encoding)) if payload.is_compressed => encoding.decompress(&payload.bytes),
        _ => Ok(payload.bytes),
    }
}

/// The same call with an uncompressed message.
///
/// # Errors
/// As [`read`].
pub(super) async fn decompressed(request: Request<Incoming>) -> Result<Request<Body>, Status> {
    if !request.headers().contains_key(ENCODING) {
        return Ok(request.map(Body::new));
    }
    let (mut head, body) = request.into_parts();
    let message = read(&head.headers, body).await?;
    head.headers.remove(ENCODING);
    Ok(Request::from_parts(head, Body::new(Full::new(unary::framed(&message)))))
}

impl Encoding {
    /// The encoding that the headers name; `None` if there is none, an error if it is not accepted.
    fn of(headers: &HeaderMap) -> Result<Option<Self>, ()> {
        match headers.get(ENCODING).map(|name| name.as_bytes()) {
            None | Some(b"identity") => Ok(None),
            Some(b"gzip") => Ok(Some(Self::Gzip)),
            Some(b"deflate") => Ok(Some(Self::Deflate)),
            Some(_) => Err(()),
        }
    }

    fn decompress(self, bytes: &[u8]) -> Result<Bytes, Status> {
        let mut message = Vec::new();
        let limit = MESSAGE_LIMIT as u64 + 1;
        let read = match self {
            Self::Gzip => GzDecoder::new(bytes).take(limit).read_to_end(&mut message),
            Self::Deflate => ZlibDecoder::new(bytes).take(limit).read_to_end(&mut message),
        };
        read.map_err(|error| broken(&error))?;
        if message.len() > MESSAGE_LIMIT {
            let unreadable = Unreadable::TooLarge { size: message.len(), limit: MESSAGE_LIMIT };
            return Err(unread(&unreadable));
        }
        Ok(message.into())
    }
}

fn broken(error: &io::Error) -> Status {
    Status::new(Code::Internal, format!("the message cannot be decompressed: {error}"))
}

fn unread(unreadable: &Unreadable) -> Status {
    let code = match unreadable {
        Unreadable::Unsupported => Code::Unimplemented,
        Unreadable::TooLarge { .. } => Code::OutOfRange,
        _ => Code::Internal,
    };
    Status::new(code, unreadable.to_string())
}
