//! Batch inference: the rows of files through hosts of the Open Inference Protocol, each exactly once
//! in the output.
//!
//! [`run()`] runs a [`Job`]. Its plan is written once; its chunks are ranges of rows that depend on
//! nothing else. A chunk is read (`readers`), its batches are scored as the crate `dispatch` decides
//! (`conductor`), and its output is committed by an object that is created once (`output`). The
//! manifest names the files of all chunks in order.

mod batch;
mod columns;
mod commit;
mod conductor;
mod control;
mod decode;
mod encode;
mod error;
mod hosts;
mod input;
mod job;
mod lease;
mod memory;
mod output;
mod plan;
mod prepare;
mod progress;
mod readers;
mod retry;
mod run;
mod status;
mod store;
mod time;
mod work;

pub use self::{
    batch::Death,
    commit::{Commit, DataFile, MANIFEST, Manifest},
    control::Control,
    error::Error,
    job::{ColumnType, Host, Job, MaxErrors, Model, OneOrMore, Period, Size, Source},
    progress::{HostProgress, Progress, Watch},
    run::run,
    status::{State, Status, list},
    store::{NewObject, Store},
};
pub use outrigger_tables::Format;
