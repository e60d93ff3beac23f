//! The model store on disk: one volume shared with the engine.
//!
//! ```text
//! blobs/sha256/<hex>               layers as they were pulled
//! partial/<hex>                    layers on their way, resumable
//! trees/<hex>/tree.json, data/     unpacked images: verified, immutable
//! serving/<servable>/<version>     relative link to a tree's model directory
//! journal/                         what has to survive a restart
//! lock                             held by the one control plane that uses the store
//! ```
//!
//! Nothing becomes visible under its final name before it is complete and on
//! the disk: trees, links and journal files are made under a temporary name
//! (starting with a dot) and renamed. What a crash leaves is removed by
//! [`Store::open`].
//!
//! # Space
//! The disk is the truth: usage is measured, not remembered. Blobs of an
//! unpacked image stay as a cache, since they make the next version's pull
//! cheaper, and go first when space is needed. The order of eviction:
//! 1. partial downloads and blobs that no [`Reservation`] protects, the longest unused first;
//! 2. trees that are neither published nor in use as the caller says, the longest unused first.
//!
//! If that is not enough the answer is [`Error::Full`] or [`Error::NoSpace`].
//!
//! All calls block; asynchronous callers use `spawn_blocking`.

mod blobs;
mod config;
mod disk;
mod error;
mod journal;
pub mod metrics;
mod serving;
mod space;
mod store;
#[cfg(test)]
mod testing;
mod tree;
mod unpack;

pub use config::{Config, UnpackLimits};
pub use error::{EntryProblem, Error, LayerProblem, PackageProblem, Result};
pub use journal::{Desired, Journal, Promoted, Record};
pub use serving::Published;
pub use space::{InUse, Reservation, Usage};
pub use store::Store;
pub use tree::Tree;
pub use unpack::Package;
