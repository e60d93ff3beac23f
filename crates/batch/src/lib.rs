//! Batch inference: the rows of files through hosts of the Open Inference Protocol, each exactly once
//! in the output.
//!
//! [`run()`] runs a [`Job`]. Its plan is written once; its chunks are ranges of rows that depend on
//! nothing else. A chunk is read (`readers`), its batches are scored as the crate `dispatch` decides
//! (`conductor`), and its output is committed by an object that is created once (`output`). The
//! manifest names the files of all chunks in order.
//!
//! What follows on a job reads its manifest: [`diff()`] compares two outputs, [`verify_on_hosts`]
//! and [`write_features`] score a sample again, and [`compact()`] makes few large files of many
//! small ones.

mod batch;
mod columns;
mod commit;
mod compact;
mod conductor;
mod control;
mod decode;
mod diff;
mod encode;
mod error;
mod finished;
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
mod verify;
mod work;

pub use self::{
    batch::Death,
    commit::{Commit, DataFile, MANIFEST, Manifest},
    compact::{Compacted, CompactedFile, Source as CompactionSource, compact},
    control::Control,
    diff::{ColumnDifference, DiffSettings, Difference, Tolerance, Worst, diff},
    error::Error,
    job::{Compaction, Host, Job, MaxErrors, Model, OneOrMore, Period, Size, Source},
    progress::{HostProgress, Progress, Watch},
    run::run,
    status::{State, Status, list},
    store::{NewObject, Store},
    verify::{
        EXPECTED, HostVerification, ROW, Sample, TREATMENT, Verified, VersionMatch,
        verify_on_hosts, write_features,
    },
};
