//! Features to tensors, and outputs to scores. Sync, no I/O.
//!
//! A model says in metadata.json which features its tensors are made of
//! ([`Metadata`]); [`Metadata::check_interface`] holds that against what the model
//! itself says.
//! [`Plan`], compiled once a model, turns encoded `outrigger.v1.PredictRequest`s
//! into the engine's tensors ([`Plan::pack`]) and the engine's outputs into
//! encoded responses ([`Plan::answer`]); [`Plan::explain`] shows the same tensors
//! with the origin of every value. [`golden`] replays recorded cases and [`json`]
//! is the HTTP form of requests and responses.
//!
//! Shapes, for B users, up to T treatments a user and `width` the sum of a
//! tensor's feature lengths: user tensors `[B, width]`, treatment tensors
//! `[B, T, width]`, counts and seeds `[B]`; outputs `[B, T]` or `[B, T, 1]` per
//! treatment, `[B]` or `[B, 1]` for single ones.

mod answer;
mod column;
mod explain;
#[cfg(test)]
mod fixtures;
pub mod golden;
mod interface;
pub mod json;
pub mod metadata;
mod pack;
mod plan;
mod reader;
#[cfg(any(test, feature = "reference"))]
#[doc(hidden)]
pub mod reference;
mod request;
mod smoke;
mod transcode;
mod values;
mod vectors;

pub use answer::{Answer, Best, Sample};
pub use golden::{GoldenCase, GoldenError};
pub use interface::InterfaceError;
pub use metadata::{Metadata, MetadataError};
pub use pack::{FeatureCounts, Ids, Limits, Packed, UserRows};
pub use plan::Plan;
pub use transcode::{Request, Routing, requests, routing_key};
pub use values::{Sent, Slot};
