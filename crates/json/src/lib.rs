//! JSON text that is read and written in place, without values in between. Synchronous, without
//! I/O.
//!
//! [`Cursor`] reads text in UTF-8 and stops at the first byte that it does not expect; [`number`]
//! reads numbers exactly. [`writer`] writes objects and arrays.

mod cursor;
mod escape;
pub mod number;
pub mod writer;

pub use cursor::{Cursor, Odd, Read, Text, deeper};
