//! The judge on generated or logged traffic.

mod drift;
mod engine;
mod log;
mod overload;
mod overloaded;
mod report;
mod traffic;
mod trial;

use std::time::Duration;

pub use crate::random::Random;
pub use drift::Drift;
pub use log::{Log, Logged, TooShort};
pub use overload::Overload;
pub use overloaded::Overloaded;
pub use report::{Power, Report};
pub use traffic::{Effect, Generated, Live, Traffic};
pub use trial::{Ending, Trial};

/// A duration, capped at the longest that can be represented.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
