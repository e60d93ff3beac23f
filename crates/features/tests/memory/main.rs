//! The memory used to convert a request to tensors: a small multiple of the request's
//! length, even if it is crafted to use much.

mod json;
mod plans;
mod wire;

use std::cell::Cell;

use outrigger_testkit::allocator::Reporting;

thread_local! {
    /// The memory in use that this thread allocated, in bytes.
    static HELD: Cell<usize> = const { Cell::new(0) };
    /// The peak of `HELD`.
    static MOST: Cell<usize> = const { Cell::new(0) };
}

fn allocated(bytes: usize) {
    HELD.set(HELD.get().wrapping_add(bytes));
    MOST.set(MOST.get().max(HELD.get()));
}

fn freed(bytes: usize) {
    HELD.set(HELD.get().wrapping_sub(bytes));
}

#[global_allocator]
static MEASURING: Reporting = Reporting { allocated, freed };

/// The result of `work`, and the memory in bytes that it holds.
fn kept<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    let made = work();
    (made, HELD.get() - before)
}

/// The peak memory of `work` in bytes, beyond the memory in use before.
fn most(work: impl FnOnce()) -> usize {
    let before = HELD.get();
    MOST.set(before);
    work();
    MOST.get() - before
}
