//! The forms of messages over HTTP: JSON, and JSON followed by binary tensors.

mod address;
mod data;
mod fields;
mod forms;
mod memory;
mod path;
mod raw;
mod request;
mod response;
mod tensor;
#[cfg(test)]
mod tests;
mod write;

pub use address::{Escaped, escaped, model_path};
pub use forms::{Form, Forms};
pub use memory::memory;
pub use path::{ModelPath, OfModel, Resource, Verb};
pub use raw::raw_request;
pub use request::{find_id, read_request};
pub use response::{Unreadable, read_response};
pub use write::{Encoded, NonFinite, json_size, write_request, write_response};

/// The header with the length of the JSON in front of binary tensors, in bytes. In a request, 0
/// stands for a body that is the data of the only input.
pub const HEADER_LENGTH: &str = "inference-header-content-length";
