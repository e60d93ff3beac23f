//! References, credentials, pull and push of OCI images, in registries and in image layout
//! directories.
//!
//! Pulls use a thin HTTP layer with limits of its own: the size of manifests is limited, blobs are
//! hashed while they stream to disk and resumed by range, credentials are read again after a 401,
//! and errors are distinguished by type.

mod auth;
mod blocking;
pub mod build;
mod client;
mod config;
mod credentials;
mod download;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod image;
mod layout;
mod manifest;
pub mod metrics;
mod partial;
mod platform;
mod progress;
mod push;
mod reference;
mod referrers;
mod registry;
mod retry;
mod secret;
pub mod signature;
mod source;
mod transport;

pub use client::Client;
pub use config::{Config, Credentials, Identity, Limits, Retries, Timeouts};
pub use error::{Cause, Error};
pub use image::{Image, Layer};
pub use platform::Platform;
pub use progress::{Progress, Receiver, Space};
pub use push::{Content, ImageToPush, LayerToPush};
pub use reference::{InvalidHost, InvalidReference, Prefix, Reference, Repository, registry_host};
pub use referrers::{Artifact, Attached};
