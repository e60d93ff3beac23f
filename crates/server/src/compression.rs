//! The policy for compressed requests and answers, the same on all fronts.

mod answer;
mod decompress;

use axum::{
    body::Bytes,
    http::{
        HeaderMap, HeaderName, HeaderValue,
        header::{ACCEPT_ENCODING, CONTENT_ENCODING},
    },
};
use outrigger_compression::{Encoding, declared, preferred};
use outrigger_core::{Failure, Reason};
use outrigger_proto::raw::unary::{Bounds, Compressed, Payload};

pub(crate) use self::{
    answer::compress,
    decompress::{decompress, decompress_small},
};
use crate::config::Compression;

/// The headers in which a protocol names encodings.
#[derive(Debug)]
pub(crate) struct Names {
    /// The encoding of a message.
    encoding: HeaderName,
    /// The encodings that are accepted.
    accepted: HeaderName,
}

/// The headers of gRPC.
pub(crate) static GRPC: Names = Names {
    encoding: HeaderName::from_static("grpc-encoding"),
    accepted: HeaderName::from_static("grpc-accept-encoding"),
};

/// The headers of HTTP. A server may name the encodings that it accepts too (RFC 9110, section
/// 12.5.3).
pub(crate) static HTTP: Names = Names { encoding: CONTENT_ENCODING, accepted: ACCEPT_ENCODING };

/// The policy of `server.compression` for the requests of a protocol.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    setting: Compression,
    names: &'static Names,
}

impl Policy {
    pub(crate) const fn new(setting: Compression, names: &'static Names) -> Self {
        Self { setting, names }
    }

    /// The encoding of a request; `None` if it has none.
    ///
    /// # Errors
    /// `ENCODING_UNSUPPORTED`: it is not accepted.
    pub(crate) fn request(&self, headers: &HeaderMap) -> Result<Option<Encoding>, Failure> {
        let values = headers.get_all(&self.names.encoding).iter().map(HeaderValue::as_bytes);
        match (declared(values), self.setting) {
            (Ok(None), _) => Ok(None),
            (Ok(Some(encoding)), Compression::Requests | Compression::Both) => Ok(Some(encoding)),
            _ => Err(self.unsupported()),
        }
    }

    /// True if a request names an encoding.
    pub(crate) fn declares(&self, headers: &HeaderMap) -> bool {
        headers.contains_key(&self.names.encoding)
    }

    /// Removes the name of the encoding from the headers of a request.
    pub(crate) fn forget(&self, headers: &mut HeaderMap) {
        headers.remove(&self.names.encoding);
    }

    /// The encoding of a request over gRPC, whose message may be sent as it is nevertheless.
    pub(crate) fn message(&self, headers: &HeaderMap) -> Declared {
        Declared(self.request(headers))
    }

    /// The encoding for an answer; `None` if it is not compressed.
    pub(crate) fn answer(&self, headers: &HeaderMap) -> Option<Encoding> {
        if !self.varies() {
            return None;
        }
        preferred(headers.get_all(&self.names.accepted).iter().map(HeaderValue::as_bytes))
    }

    /// True if answers depend on the encodings that the caller accepts.
    pub(crate) fn varies(&self) -> bool {
        self.setting == Compression::Both
    }

    /// Names the encoding of an answer in its headers.
    pub(crate) fn label(&self, encoding: Encoding, headers: &mut HeaderMap) {
        let name = HeaderValue::from_static(encoding.name());
        headers.insert(self.names.encoding.clone(), name);
    }

    /// Adds the accepted encodings to the answer of a request that was refused for its encoding.
    pub(crate) fn explain(&self, failure: &Failure, headers: &mut HeaderMap) {
        if failure.reason == Reason::EncodingUnsupported {
            let accepted = HeaderValue::from_static(self.accepted());
            headers.insert(self.names.accepted.clone(), accepted);
        }
    }

    fn unsupported(&self) -> Failure {
        let encoding = &self.names.encoding;
        let message = format!("{encoding}: the accepted encodings are {}", self.accepted());
        Failure::new(Reason::EncodingUnsupported, message)
    }

    const fn accepted(&self) -> &'static str {
        match self.setting {
            Compression::None => "identity",
            Compression::Requests | Compression::Both => "identity, gzip, zstd, deflate",
        }
    }
}

/// The encoding that a request over gRPC declares.
pub(crate) struct Declared(Result<Option<Encoding>, Failure>);

impl Declared {
    /// The bounds of its message, which may have `size` bytes.
    pub(crate) fn bounds(&self, size: usize) -> Bounds {
        let compressed = match self.0 {
            Ok(Some(_)) => Compressed::Accepted,
            Ok(None) => Compressed::Undeclared,
            Err(_) => Compressed::Unsupported,
        };
        Bounds { size, compressed }
    }

    /// The encoding of the message that was read; `None` if it was sent as it is.
    ///
    /// # Errors
    /// It could not be read.
    pub(crate) fn of(
        self,
        read: Result<Payload, Failure>,
    ) -> Result<(Option<Encoding>, Bytes), Failure> {
        match (read, self.0) {
            (Ok(payload), encoding) => {
                let encoding = encoding.ok().flatten().filter(|_| payload.is_compressed);
                Ok((encoding, payload.bytes))
            }
            // This failure names the accepted encodings.
            (Err(failure), Err(named)) if failure.reason == named.reason => Err(named),
            (Err(failure), _) => Err(failure),
        }
    }
}

#[cfg(test)]
mod tests;
