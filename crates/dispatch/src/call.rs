//! The calls to hosts, their ends, and the fate of rows.

use std::{ops::Range, sync::Arc, time::Duration};

use outrigger_core::Moment;
use outrigger_resilience::Class;

use crate::host::is_answer;

/// A host, as the caller numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// A batch of rows, as the caller numbers it. A number is not used twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

impl BatchId {
    /// The number of no batch.
    pub const NONE: Self = Self(u64::MAX);
}

/// A call. A number is not used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A call that the caller must send. It ends with [`crate::Dispatcher::ended`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its number.
    pub id: CallId,
    /// The host that gets it.
    pub host: HostId,
    /// The batch of its rows.
    pub batch: BatchId,
    /// Its rows, counted from the start of the batch.
    pub rows: Range<u32>,
    /// The number of calls that these rows were in, with this one.
    pub attempt: u32,
    /// The purpose of the call.
    pub purpose: Purpose,
    /// True if its end decides about the return of a host that was withdrawn.
    pub is_probe: bool,
}

/// The purpose of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Its rows are to be scored.
    Score,
    /// Another host has these rows and takes long; the first answer counts.
    Hedge,
    /// The host is to be tested with the row of [`Settled::keep`], which was scored before. The
    /// answer's scores are not used.
    Check,
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The host scored all rows.
    Scored,
    /// The call failed.
    Failed(Failure),
    /// The caller gave the call up for a reason of its own: its rows wait again, and the call says
    /// nothing about them or the host.
    Withdrawn,
    /// As [`Self::Withdrawn`], and the caller cannot take so large an answer: the rows are sent again
    /// in two parts, unless there is only one.
    Oversized,
}

/// The failure of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The class, which decides.
    pub class: Class,
    /// True if an answer came and is not valid: another shape, other rows, another request's.
    pub is_bad_reply: bool,
    /// True if the host has answered, and the same call may succeed later. Many such failures in a row
    /// count against the rows, as other answers do at once.
    pub may_pass: bool,
    /// The pause that the host asks for.
    pub retry_after: Option<Duration>,
    /// The message for people. It is kept while it may become that of a dead row.
    pub message: Arc<str>,
}

impl Failure {
    /// A failure of this class.
    pub fn new(class: Class, message: impl Into<Arc<str>>) -> Self {
        Self {
            class,
            is_bad_reply: false,
            may_pass: false,
            retry_after: None,
            message: message.into(),
        }
    }

    /// The failure as an answer that counts against its rows.
    pub(crate) fn for_good(self) -> Self {
        let class = if is_answer(self.class) { self.class } else { Class::Ambiguous };
        Self { class, may_pass: false, ..self }
    }
}

/// The changes that the end of a call brings. Where rows of one batch are scored and others dead,
/// the scored ones come first: the last one of them all has `is_last`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// The rows that the call has scored. The caller uses the answer only for these.
    pub scored: Option<Scored>,
    /// Rows that no host scores.
    pub dead: Vec<Dead>,
    /// Calls that are no longer needed. Their ends need not be reported.
    pub cancel: Vec<CallId>,
    /// The caller keeps the input of this row until the dispatcher is dropped: calls for
    /// [`Purpose::Check`] send it. It is there once, with the first rows that are scored.
    pub keep: Option<(BatchId, Range<u32>)>,
}

/// Rows that were scored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scored {
    /// The batch of the rows.
    pub batch: BatchId,
    /// The rows.
    pub rows: Range<u32>,
    /// The host that scored them.
    pub host: HostId,
    /// True if no row of the batch remains.
    pub is_last: bool,
}

/// A row that no host scores, by the evidence of at least two calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    /// The batch of the row.
    pub batch: BatchId,
    /// The row.
    pub row: u32,
    /// The reason.
    pub reason: Reason,
    /// The message of the last failure.
    pub message: Arc<str>,
    /// The hosts that failed on calls with the row.
    pub hosts: Vec<HostId>,
    /// The calls that the row was in.
    pub attempts: u32,
    /// The time at which the first one was sent.
    pub first: Moment,
    /// The time at which the last one ended.
    pub last: Moment,
    /// True if no row of the batch remains.
    pub is_last: bool,
}

/// The reason why a row is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The hosts refused the row.
    InvalidInput,
    /// The model failed on the row.
    ModelError,
    /// No answer came in time.
    Timeout,
    /// The row alone is larger than the hosts take.
    TooLarge,
    /// The answers were not valid.
    BadReply,
    /// The connection broke each time: the row ends its host.
    HostLost,
}

impl Reason {
    /// The name in dead letters and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidInput => "invalid_input",
            Self::ModelError => "model_error",
            Self::Timeout => "timeout",
            Self::TooLarge => "too_large",
            Self::BadReply => "bad_reply",
            Self::HostLost => "host_lost",
        }
    }

    pub(crate) fn of(failure: &Failure) -> Self {
        match failure.class {
            _ if failure.is_bad_reply => Self::BadReply,
            Class::Refused => Self::InvalidInput,
            Class::TooLarge(_) => Self::TooLarge,
            Class::Timeout => Self::Timeout,
            Class::Lost => Self::HostLost,
            Class::Ambiguous | Class::Unavailable | Class::Overloaded => Self::ModelError,
        }
    }
}

/// The reason why a job was stopped. Its rows that are not settled may be scored by a later run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// There are more dead rows than [`crate::MaxErrors`] allows.
    MaxErrors,
    /// Hosts answer, and no call has succeeded for the time of [`crate::Settings::patience`].
    NoSuccess,
}
