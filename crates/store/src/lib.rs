//! The model store on disk: one volume shared with the engine.
//!
//! ```text
//! blobs/sha256/<hex>               layers as they were pulled
//! partial/<hex>                    layers being downloaded, resumable
//! trees/<hex>/tree.json, data/     unpacked images: verified, immutable
//! serving/<servable>/<version>     relative link to a tree's model directory, for the default engine
//! serving-<engine>/...             the same for each other engine
//! trees/<hex>/seen.json            the models and tags that the image was seen under
//! journal/                         state that must survive a restart, in two copies
//! lock                             held by the one control plane that uses the store
//! ```
//!
//! Everything is complete and synced to disk before it appears under its final name: trees, links
//! and journal files are written under a temporary name (starting with a dot) and renamed.
//! [`Store::open`] removes what a crash leaves.
//!
//! # Space
//! Usage is measured on the disk, not counted in memory. Blobs of an unpacked image stay as a
//! cache, since they make the pull of the next version cheaper, and are evicted first. The order of
//! eviction:
//! 1. partial downloads and blobs that no [`Reservation`] protects, least recently used first;
//! 2. trees that are neither published nor reported in use by the caller, least recently used first.
//!
//! If that does not free enough space, the call fails with [`Error::Full`] or [`Error::NoSpace`].
//!
//! All calls block; asynchronous callers use `spawn_blocking`.

mod beneath;
mod blobs;
mod config;
mod directory;
mod disk;
mod error;
mod journal;
pub mod metrics;
mod record;
mod seen;
mod serving;
mod space;
mod store;
#[cfg(test)]
mod testing;
mod tree;
mod unpack;

pub use config::{Config, UnpackLimits};
pub use directory::{Directory, Files};
pub use error::{EntryProblem, Error, LayerProblem, PackageProblem, Result, VersionProblem};
pub use journal::Journal;
pub use record::{Desired, Promoted, Record};
pub use serving::{Published, Serving};
pub use space::{InUse, Reservation, Usage};
pub use store::Store;
pub use tree::Tree;
pub use unpack::Package;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use unpack::fuzzing;
