//! What the commands do beside serving: talking to a server, and making,
//! fetching, looking at and checking model packages.
//!
//! Everything here returns data; printing is [`output`]'s business.

mod access;
pub mod canaries;
pub mod engine;
mod error;
pub mod fetch;
mod framework;
pub mod inspect;
pub mod models;
pub mod output;
pub mod package;
pub mod predict;
pub mod registry;
mod selector;
pub mod validate;

pub use access::{Access, Terms};
pub use error::Error;
pub use selector::{InvalidModel, ModelArgument};
