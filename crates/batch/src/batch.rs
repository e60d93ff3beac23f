//! Batches of rows: from the reading of a chunk to its output.

use std::{ops::Range, sync::mpsc::Sender};

use arrow_array::RecordBatch;
use outrigger_oip::Tensor;
use outrigger_oip_client::Request;
use serde::{Deserialize, Serialize};

use crate::memory::Charge;

/// Rows of a chunk on their way to the hosts.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The number among the batches of the chunk, from 0.
    pub(crate) sequence: u64,
    /// The key columns of all rows.
    pub(crate) keys: RecordBatch,
    /// The positions of the rows of the request.
    pub(crate) rows: Vec<u32>,
    pub(crate) request: Request,
    /// The estimated tokens of the request, for language models.
    pub(crate) tokens: u64,
    /// The names of the hosts that its rows may have ended before the job began.
    pub(crate) ended: Vec<String>,
    /// The rows that are dead, by their position.
    pub(crate) dead: Vec<(u32, Death)>,
    /// The bytes of the keys, and of these with two copies of the inputs: a request is encoded once
    /// more for each call.
    pub(crate) keys_bytes: u64,
    pub(crate) bytes: u64,
    pub(crate) charge: Charge,
    /// The output of the chunk; `None` in the output's own hands, which would wait for itself.
    pub(crate) output: Option<Sender<ToOutput>>,
}

impl Batch {
    /// Passes the batch to its output, with the answers for all rows that are not dead. Returns false
    /// if the output has ended. `is_due`: the batches of the chunk before it are there.
    pub(crate) fn settle(mut self, pieces: Vec<Piece>, is_due: bool) -> bool {
        let Some(output) = self.output.take() else { return false };
        self.charge.settle(is_due);
        let settled = Box::new(Settled { batch: self, pieces });
        output.send(ToOutput::Settled(settled)).is_ok()
    }
}

/// An answer for some rows of a request.
#[derive(Debug)]
pub(crate) struct Piece {
    /// The rows of the request.
    pub(crate) rows: Range<u32>,
    pub(crate) outputs: Vec<Tensor>,
    pub(crate) host: String,
}

/// A batch whose rows are all scored or dead.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) batch: Batch,
    pub(crate) pieces: Vec<Piece>,
}

/// A message to the output of a chunk.
#[derive(Debug)]
pub(crate) enum ToOutput {
    Settled(Box<Settled>),
    /// The chunk was read, and has so many batches.
    End {
        batches: u64,
    },
}

/// The end of a row that no host scores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    /// The reason: `invalid_input`, `model_error`, `timeout`, `too_large`, `bad_reply` or
    /// `host_lost`.
    pub reason: String,
    /// The last error.
    pub error: String,
    /// The hosts that failed on the row; none if it was never sent.
    pub hosts: Vec<String>,
    /// The requests that the row was in.
    pub attempts: u32,
    /// The time of the first one (RFC 3339), or of the refusal.
    pub first: String,
    /// The time at which the last one ended.
    pub last: String,
}

impl Death {
    /// The end of a row that cannot be sent.
    pub(crate) fn invalid(error: String) -> Self {
        let now = crate::time::now();
        Self {
            reason: outrigger_dispatch::Reason::InvalidInput.name().to_owned(),
            error,
            hosts: Vec::new(),
            attempts: 0,
            first: now.clone(),
            last: now,
        }
    }
}
