//! The judge on traffic that is generated or was logged.

mod log;
mod random;
mod report;
mod traffic;
mod trial;

use std::time::Duration;

pub use log::{Log, Logged, TooShort};
pub use random::Random;
pub use report::{Power, Report};
pub use traffic::{Effect, Generated, Live, Traffic};
pub use trial::{Ending, Trial};

/// So many seconds, as far as a duration can tell.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
