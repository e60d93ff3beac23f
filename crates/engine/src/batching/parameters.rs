//! The parameters of batching.

use std::time::Duration;

use crate::{cores::cores, status::Status};

/// `BatchingParameters` of TensorFlow Serving's session_bundle_config.proto, with its defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    /// The most rows of a request, and of a batch that is not split.
    pub max_batch_size: i64,
    /// The time that a batch waits for further requests, in microseconds.
    pub batch_timeout_micros: i64,
    /// The most batches in one queue.
    pub max_enqueued_batches: i64,
    /// The threads that run batches; `None` for one per core.
    pub num_batch_threads: Option<i64>,
    /// The sizes that batches are padded to, ascending; empty for any size.
    pub allowed_batch_sizes: Vec<i64>,
    /// True if inputs of different shapes are padded to the largest of their batch.
    pub pad_variable_length_inputs: bool,
    /// True if a request may be split over several batches.
    pub enable_large_batch_splitting: bool,
    /// The most rows of a batch, if requests are split; `None` for `max_batch_size`.
    pub max_execution_batch_size: Option<i64>,
}

/// Parameters that were checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The most rows of a request.
    pub max_request: usize,
    /// The most rows of a batch.
    pub max_batch: usize,
    /// The time that a batch waits for further requests.
    pub timeout: Duration,
    /// The most batches in one queue.
    pub max_enqueued: usize,
    /// The sizes that batches are padded to, ascending; empty for any size.
    pub allowed_sizes: Vec<usize>,
    /// True if inputs of different shapes are padded to the largest of their batch.
    pub pads: bool,
    /// True if a request may be split over several batches.
    pub splits: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            max_batch_size: 1000,
            batch_timeout_micros: 0,
            max_enqueued_batches: 10,
            num_batch_threads: None,
            allowed_batch_sizes: Vec::new(),
            pad_variable_length_inputs: false,
            enable_large_batch_splitting: false,
            max_execution_batch_size: None,
        }
    }
}

impl Parameters {
    /// The number of threads that run batches.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it is not positive.
    pub fn threads(&self) -> Result<usize, Status> {
        self.num_batch_threads.map_or(Ok(cores()), |number| positive("num_batch_threads", number))
    }

    /// The rules of the queues of a model.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if a parameter is out of range or contradicts another one.
    pub fn rules(&self) -> Result<Rules, Status> {
        let max_request = positive("max_batch_size", self.max_batch_size)?;
        let max_batch = match (self.enable_large_batch_splitting, self.max_execution_batch_size) {
            (true, Some(number)) => positive("max_execution_batch_size", number)?,
            _ => max_request,
        };
        if max_batch > max_request {
            return Err(Status::invalid(format!(
                "max_execution_batch_size should be less than or equal to max_batch_size; but was {max_batch} vs {max_request}"
            )));
        }
        let micros = not_negative("batch_timeout_micros", self.batch_timeout_micros)?;
        let enqueued = not_negative("max_enqueued_batches", self.max_enqueued_batches)?;
        Ok(Rules {
            max_request,
            max_batch,
            timeout: Duration::from_micros(micros),
            max_enqueued: usize::try_from(enqueued).unwrap_or(usize::MAX),
            allowed_sizes: self.allowed_sizes()?,
            pads: self.pad_variable_length_inputs,
            splits: self.enable_large_batch_splitting,
        })
    }

    fn allowed_sizes(&self) -> Result<Vec<usize>, Status> {
        let sizes = &self.allowed_batch_sizes;
        let Some(last) = sizes.last() else { return Ok(Vec::new()) };
        if *last != self.max_batch_size {
            return Err(Status::invalid(format!(
                "Last entry in allowed_batch_sizes must match max_batch_size; last entry was {last}; expected {}",
                self.max_batch_size
            )));
        }
        if !sizes.is_sorted_by(|one, next| one < next) {
            let message = "allowed_batch_sizes entries must be monotonically increasing";
            return Err(Status::invalid(message));
        }
        sizes.iter().map(|size| positive("allowed_batch_sizes", *size)).collect()
    }
}

impl Rules {
    /// The number of rows that a batch of `rows` is padded to.
    pub(super) fn padded(&self, rows: usize) -> usize {
        self.allowed_sizes.iter().copied().find(|size| *size >= rows).unwrap_or(rows)
    }
}

fn positive(name: &str, number: i64) -> Result<usize, Status> {
    let positive = usize::try_from(number).ok().filter(|number| *number > 0);
    positive.ok_or_else(|| Status::invalid(format!("{name} must be positive; was {number}")))
}

fn not_negative(name: &str, number: i64) -> Result<u64, Status> {
    u64::try_from(number)
        .map_err(|_| Status::invalid(format!("{name} must be non-negative; was {number}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(change: impl FnOnce(&mut Parameters)) -> String {
        let mut parameters = Parameters::default();
        change(&mut parameters);
        parameters.rules().expect_err("it contradicts").message
    }

    #[test]
    fn parameters_out_of_range_are_refused_by_name() {
        assert_eq!(problem(|it| it.max_batch_size = 0), "max_batch_size must be positive; was 0");
        let message = problem(|it| it.batch_timeout_micros = -1);
        assert_eq!(message, "batch_timeout_micros must be non-negative; was -1");
        let message = problem(|it| it.max_enqueued_batches = -1);
        assert_eq!(message, "max_enqueued_batches must be non-negative; was -1");
        let message = problem(|it| it.allowed_batch_sizes = vec![8, 16]);
        assert!(message.contains("last entry was 16; expected 1000"), "{message}");
        let message = problem(|it| it.allowed_batch_sizes = vec![16, 8, 1000]);
        assert!(message.contains("monotonically increasing"), "{message}");
        let message = problem(|it| {
            (it.enable_large_batch_splitting, it.max_execution_batch_size) = (true, Some(1001));
        });
        assert!(message.contains("1001 vs 1000"), "{message}");
        let none = Parameters { num_batch_threads: Some(0), ..Parameters::default() };
        assert!(none.threads().is_err());
    }

    #[test]
    fn a_batch_is_padded_to_the_next_allowed_size() {
        let parameters = Parameters {
            max_batch_size: 16,
            allowed_batch_sizes: vec![4, 16],
            ..Parameters::default()
        };
        let rules = parameters.rules().expect("valid");
        assert_eq!([1, 4, 5, 16, 17].map(|rows| rules.padded(rows)), [4, 4, 16, 16, 17]);
        let any = Parameters::default().rules().expect("valid");
        assert_eq!((any.padded(5), any.max_batch), (5, 1000));
    }
}
