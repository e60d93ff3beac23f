//! The implementation of the commands other than serve, engine and bench: calls to a
//! server, and building, fetching, inspecting and validating model packages.
//!
//! All functions return data; [`output`] formats it.

mod access;
pub mod batch;
pub mod canaries;
pub mod dev;
pub mod diff;
pub mod engine;
mod error;
pub mod fetch;
mod framework;
mod in_engine;
pub mod inspect;
pub mod models;
pub mod output;
pub mod package;
pub mod predict;
pub mod registry;
mod selector;
pub mod validate;
pub mod validations;

pub use access::{Access, ClientSettings};
pub use error::Error;
pub use selector::{InvalidModel, ModelArgument};
