//! The `outrigger` binary.

fn main() {}
