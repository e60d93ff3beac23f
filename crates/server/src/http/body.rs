//! Reads the body of a request, which is charged to its call as it arrives.

use axum::body::{Body, Bytes};
use bytes::BytesMut;
use http_body_util::BodyExt as _;
use outrigger_core::{Failure, Reason};

use crate::held::Held;

/// Reads a body of at most `limit` bytes.
///
/// # Errors
/// `TOO_LARGE`, `REQUEST_MALFORMED` if it breaks off, or there is no room for it.
pub(super) async fn read(mut body: Body, limit: usize, held: &Held) -> Result<Bytes, Failure> {
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Failure::new(Reason::RequestMalformed, format!("the body broke off: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        let arrived = all.len() + data.len();
        if arrived > limit {
            let message = format!("the body has more than {limit} bytes");
            return Err(Failure::new(Reason::TooLarge, message));
        }
        held.receive(arrived, None)?;
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}
