//! Packing in two phases: the first returns the keys to look up, the second packs the
//! request with the values found.

use std::slice;

use bytes::Bytes;
use outrigger_core::{Content, Failure};
use outrigger_proto::outrigger::v1::FeatureMap;
use prost::Message;

use crate::{
    call::Call,
    packed::Packed,
    plan::{Lookup, Plan},
    transcode::{self, Request},
};

/// The rows that tables returned for a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Values {
    /// Encoded `outrigger.v1.FeatureMap`s.
    rows: Vec<Bytes>,
}

impl Values {
    /// Adds the row found for a look-up. Features that the look-up does not name are
    /// dropped.
    pub fn add(&mut self, lookup: &Lookup, mut row: FeatureMap) {
        row.features.retain(|name, _| lookup.features.iter().any(|feature| **feature == **name));
        self.rows.push(row.encode_to_vec().into());
    }
}

impl Plan {
    /// The key of each of the plan's look-ups in a request; `None` if the request does
    /// not send it, or sends an empty text.
    ///
    /// # Errors
    /// REQUEST_MALFORMED, or FEATURE_TYPE or FEATURE_LENGTH for a key that is not a text.
    pub fn keys(&self, request: &Request<'_>) -> Result<Vec<Option<Bytes>>, Failure> {
        let Some(lookups) = &self.lookups else { return Ok(Vec::new()) };
        let user = request.user_only();
        let call = Call::new(&user.limits);
        let (packed, _) = transcode::pack_requests(&lookups.keys, slice::from_ref(&user), &call)?;
        let texts = match packed.tensors.into_iter().next().map(|tensor| tensor.content) {
            Some(Content::Strings(texts)) => texts,
            _ => Vec::new(),
        };
        let key = |column: &usize| texts.get(*column).filter(|text| !text.is_empty()).cloned();
        Ok(lookups.columns.iter().map(key).collect())
    }

    /// As [`Self::pack_request`], with the values looked up. Features that the request
    /// itself sends, including explicit absence, take precedence; an invalid looked-up
    /// value is refused like one in the request.
    ///
    /// # Errors
    /// As [`Self::pack`].
    pub fn pack_with(&self, request: &Request<'_>, values: &Values) -> Result<Packed, Failure> {
        self.pack_request(&request.with(&values.rows))
    }
}

#[cfg(test)]
mod tests;
