//! Outrigger's domain: names, the error table, the state machines and their
//! invariants. Everything here is synchronous and free of I/O; time and
//! randomness come in as values.

mod arm;
mod contributions;
pub mod crashes;
pub mod engine;
mod failure;
mod interface;
pub mod invariants;
mod layer;
mod machine;
pub mod machines;
mod metric;
pub mod model;
mod moment;
mod name;
mod package;
mod policy;
pub mod rank;
mod reason;
mod rollover;
mod servable;
mod stage;
mod step;
pub mod tags;
mod tensor;
mod turns;
mod uplift;
mod version_policy;

pub use arm::Arm;
pub use contributions::{ContributionSize, Explanation};
pub use crashes::Crashes;
pub use engine::EngineId;
pub use failure::{Failure, FieldViolation, MAX_MESSAGE, causes, is_unprintable, printable};
pub use interface::{Categories, ElementType, Interface, Shape, TensorSpec};
pub use layer::LayerKind;
pub use machine::{Attempt, Context, Outcome, Versions};
pub use metric::{Metric, MetricKind};
pub use moment::Moment;
pub use name::{Digest, InvalidName, ModelKey, ModelName, Selector, Tag};
pub use package::{Describer, Layouts, PackageLayout, UnknownFramework, without_mark};
pub use policy::{Backoff, Policy};
pub use reason::{Code, Reason, Retry};
pub use rollover::Rollover;
pub use servable::{ServableId, ServableName, Version};
pub use stage::Stage;
pub use step::Step;
pub use tensor::{Content, DType, Tensor};
pub use turns::{Ticket, Turns};
pub use uplift::Uplift;
pub use version_policy::VersionPolicy;
