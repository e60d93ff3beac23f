//! Features to tensors, and outputs to scores. Sync, no I/O.
//!
//! A model says in metadata.json which features its tensors are made of
//! ([`Metadata`]); [`Metadata::check_interface`] holds that against what the model
//! itself says.
//! [`Plan`], compiled once a model, turns encoded `outrigger.v1.PredictRequest`s
//! into the engine's tensors ([`Plan::pack`]) and the engine's outputs into
//! encoded responses ([`Plan::answer`]); [`Plan::explain`] shows the same tensors
//! with the origin of every value. Where features of a user are looked up in a
//! table ([`Lookup`]), [`Plan::keys`] comes first and [`Plan::pack_with`] takes what
//! was found. [`golden`] replays recorded cases and [`json`]
//! is the HTTP form of requests and responses.
//!
//! Shapes, for B users, up to T treatments a user and `width` the sum of a
//! tensor's feature lengths: user tensors `[B, width]`, treatment tensors
//! `[B, T, width]`, counts and seeds `[B]`; outputs `[B, T]` or `[B, T, 1]` per
//! treatment, `[B]` or `[B, 1]` for single ones. Joined tensors have a row for
//! each of the R treatments of all users, unpadded: inputs `[R, width]`, outputs
//! `[R]` or `[R, 1]`. A model without features takes tensors as they are
//! ([`RawPlan`]).

mod answer;
mod call;
mod column;
mod explain;
mod finish;
#[cfg(test)]
mod fixtures;
pub mod golden;
mod interface;
pub mod json;
mod keys;
mod limits;
mod lookup;
pub mod metadata;
mod numbers;
mod options;
mod pack;
mod packed;
mod place;
mod plan;
mod raw;
mod reader;
#[cfg(any(test, feature = "reference"))]
#[doc(hidden)]
pub mod reference;
mod sent;
mod smoke;
mod transcode;
mod value;
mod vectors;

use outrigger_proto::raw::read as wire;

pub use answer::{Answer, Best, Sample};
pub use golden::{GoldenCase, GoldenError};
pub use interface::InterfaceError;
pub use limits::Limits;
pub use lookup::Values;
pub use metadata::{Metadata, MetadataError};
pub use packed::{FeatureCounts, Ids, Packed, UserRows};
pub use plan::{Lookup, LookupError, Plan};
pub use raw::RawPlan;
pub use sent::{Sent, Slot};
pub use transcode::{Request, Routing, requests, routing_key};
