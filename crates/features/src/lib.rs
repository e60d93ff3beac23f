//! Converts features to tensors, and outputs to scores. Synchronous, without I/O.
//!
//! A model's metadata.json declares the features of its tensors ([`Metadata`]);
//! [`Metadata::check_interface`] compares it with the interface that the model itself
//! declares. [`Plan`], compiled once per model, converts encoded
//! `outrigger.v1.PredictRequest`s to the engine's tensors ([`Plan::pack`]) and the
//! engine's outputs to encoded responses ([`Plan::answer`]); [`Plan::explain`] returns
//! the same tensors with the origin of every value. If features of a user are looked up
//! in a table ([`Lookup`]), [`Plan::keys`] returns the keys and [`Plan::pack_with`] takes
//! the values found. [`golden`] replays recorded cases and [`json`] is the HTTP form of
//! requests and responses.
//!
//! Shapes, for B users, up to T treatments a user and `width` the sum of a
//! tensor's feature lengths: user tensors `[B, width]`, treatment tensors
//! `[B, T, width]`, counts and seeds `[B]`; outputs `[B, T, n]` per treatment, `[B, n]`
//! for single ones, where an output's width n of 1 may be left out. Joined tensors have a
//! row for each of the R treatments of all users, unpadded: inputs `[R, width]`, outputs
//! `[R, n]`. A model without features takes tensors as they are ([`RawPlan`]), and one of sparse
//! rows may be given these as they are ([`GivenRows`]).

mod answer;
mod arrived;
mod call;
mod column;
mod entries;
mod explain;
mod faults;
mod finish;
#[cfg(test)]
mod fixtures;
mod given;
pub mod golden;
mod interface;
pub mod json;
mod keys;
mod limits;
mod lookup;
pub mod metadata;
mod meter;
mod numbers;
mod options;
mod pack;
mod packed;
mod pad;
mod place;
mod plan;
mod raw;
mod reader;
#[cfg(any(test, feature = "reference"))]
#[doc(hidden)]
pub mod reference;
mod seed;
mod sent;
mod smoke;
mod tally;
mod tensors;
mod transcode;
mod value;
mod vectors;

use outrigger_proto::raw::read as wire;

pub use answer::{Answer, Best, GivenScores, Sample};
pub use arrived::Arrived;
pub use given::{GivenInput, GivenRows};
pub use golden::{GoldenCase, GoldenCases, GoldenError, MAX_GOLDEN_CASE};
pub use interface::InterfaceError;
pub use limits::Limits;
pub use lookup::Values;
pub use metadata::{Metadata, MetadataError};
pub use meter::Meter;
pub use pack::Metered;
pub use packed::{FeatureCounts, Ids, Packed, UserRows};
pub use plan::{Lookup, LookupError, Plan};
pub use raw::{RawCall, RawPlan};
pub use sent::{Sent, Slot};
pub use transcode::{Request, Routing, requests, routing_key};
