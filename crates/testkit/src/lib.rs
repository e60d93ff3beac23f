//! Fakes, builders and fixtures for tests; each module with dependencies is a feature.

pub mod allocator;
#[cfg(feature = "remote")]
pub mod elsewhere;
#[cfg(feature = "engine")]
pub mod engine;
#[cfg(feature = "http2")]
pub mod http2;
#[cfg(feature = "layers")]
pub mod layers;
#[cfg(feature = "linear")]
pub mod linear;
#[cfg(feature = "oip")]
pub mod oip;
#[cfg(feature = "saved-model")]
pub mod package;
#[cfg(feature = "registry")]
pub mod registry;
#[cfg(feature = "remote")]
pub mod remote;
#[cfg(feature = "saved-model")]
pub mod saved_model;
pub mod tables;
#[cfg(any(feature = "oip", feature = "registry"))]
mod tls;
pub mod tools;
