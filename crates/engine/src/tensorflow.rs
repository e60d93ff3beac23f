//! TensorFlow's C library, opened at run time, behind a safe interface.
//!
//! The library is the one in the wheel `tensorflow-cpu`. It is opened once per process
//! and never closed, because its threads outlive all sessions and would run unmapped
//! code.

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
