//! The processor's cores.

use std::thread;

/// Number of cores that this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
