//! The judge on traffic that is generated or was logged.

mod log;
mod random;
mod report;
mod traffic;
mod trial;

pub use log::Logged;
pub use random::Random;
pub use report::{Power, Report, TooShort};
pub use traffic::{Effect, Generated, Live, Traffic};
pub use trial::{Ending, Trial};
