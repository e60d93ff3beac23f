//! Outrigger's domain: names, the error table, the state machines and their
//! invariants. Everything here is synchronous and free of I/O; time and
//! randomness come in as values.

mod arm;
mod failure;
mod layer;
mod metric;
mod moment;
mod name;
mod reason;
mod servable;
mod stage;
mod tensor;

pub use arm::Arm;
pub use failure::{Failure, FieldViolation};
pub use layer::LayerKind;
pub use metric::{Metric, MetricKind};
pub use moment::Moment;
pub use name::{Digest, InvalidName, ModelKey, ModelName, Selector, Tag};
pub use reason::{Code, Reason, Retry};
pub use servable::{ServableId, ServableName, Version};
pub use stage::Stage;
pub use tensor::{Content, DType, Tensor};
