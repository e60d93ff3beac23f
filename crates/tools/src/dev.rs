//! The parts of `outrigger dev`: an engine as a child process, and directories whose packages are
//! served as they change. Both report what they do in the log.

mod engine;
mod publish;
mod state;
mod watched;

pub use engine::DevEngine;
pub use watched::{InvalidWatched, Target, Watched, WatchedArgument, follow};
