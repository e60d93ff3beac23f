//! Batch inference: the rows of files through hosts of the Open Inference Protocol, or of OpenAI's
//! API, each exactly once in the output.
//!
//! [`run()`] runs a [`Job`]. Its plan is written once; its chunks are ranges of rows that depend on
//! nothing else. A chunk is read (`readers`), its batches are scored as the crate `dispatch` decides
//! (`conductor`), and its output is committed by an object that is created once (`output`). The
//! manifest names the files of all chunks in order.
//!
//! Three others read the manifest of a finished job: [`diff()`] compares two outputs,
//! [`verify_on_hosts`] and [`write_features`] score a sample again, and [`compact()`] makes few
//! large files of many small ones.

mod batch;
mod columns;
mod commit;
mod compact;
mod conductor;
mod control;
mod dead;
mod decode;
mod diff;
mod discovery;
mod encode;
mod endpoint;
mod environment;
mod error;
mod finished;
mod history;
mod hosts;
mod input;
mod job;
mod language;
mod lease;
mod letters;
mod memory;
mod names;
mod output;
mod part;
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
    discovery::{Health, Periods},
    endpoint::{Answer, Description, Endpoint, Usage},
    environment::{Engine, Environment, StartEngines},
    error::Error,
    history::{History, Run},
    job::{
        ColumnType, Compaction, Host, Job, MaxErrors, Model, OneOrMore, Output, Package, Period,
        Protocol, Quota, Size, Source,
    },
    letters::Letter,
    names::{Resolve, SystemResolver},
    part::Part,
    progress::{ENDS, HostProgress, LastFailure, Progress, Watch},
    run::{run, run_in},
    status::{Reader, State, Status, list},
    store::{Failure, Listed, NewObject, Objects, Patience, Put, Store},
    verify::{
        EXPECTED, HostVerification, ROW, Sample, TREATMENT, Verified, Verifiers, VersionMatch,
        verify_on_hosts, write_features,
    },
};
pub use outrigger_tables::Format;
