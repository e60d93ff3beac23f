//! TensorFlow's C library, opened at run time, behind safe types.
//!
//! The library is the one inside the wheel `tensorflow-cpu`. It is opened once
//! a process and never closed: TensorFlow keeps threads that would run
//! unmapped code.

mod api;
mod dtype;
mod locate;
mod run_options;
mod runtime;
mod session;
mod status;
mod strings;
mod tensor;

pub use dtype::DType;
pub use locate::{LocateError, locate};
pub use runtime::{OpenError, Runtime};
pub use session::{Endpoint, Executor, Session, Threads};
pub use tensor::{Tensor, TensorWriter};
