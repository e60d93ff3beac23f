//! Outrigger's domain: names, the error table, the state machines and their
//! invariants. Everything here is synchronous and free of I/O; time and
//! randomness come in as values.

mod failure;
mod layer;
mod metric;
mod name;
mod reason;
mod servable;
mod tensor;

pub use failure::{Failure, FieldViolation};
pub use layer::LayerKind;
pub use metric::{Metric, MetricKind};
pub use name::{Digest, InvalidName, ModelKey, ModelName, Selector, Tag};
pub use reason::{Code, Reason, Retry};
pub use servable::{ServableId, ServableName, Version};
pub use tensor::{Content, DType, Tensor};
