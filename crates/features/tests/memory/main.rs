//! The memory used to convert a request to tensors: a small multiple of the request's
//! length, even if it is crafted to use much.

mod json;
mod plans;
mod wire;

use outrigger_testkit::allocator::{self, Reporting, measured};

#[global_allocator]
static MEASURING: Reporting = allocator::MEASURING;

/// The result of `work`, and the memory in bytes that it holds.
fn kept<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let (made, memory) = measured(work);
    (made, memory.held)
}

/// The peak memory of `work` in bytes, beyond the memory in use before.
fn most(work: impl FnOnce()) -> usize {
    measured(work).1.peak
}
