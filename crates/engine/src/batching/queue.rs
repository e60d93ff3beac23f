//! One queue of batches.

use std::{collections::VecDeque, ops::Range, sync::Arc, time::Instant};

use tonic::Code;

use super::Rules;
use crate::status::Status;

/// The rows of one request that are part of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece<T> {
    pub(super) task: Arc<T>,
    pub(super) rows: Range<usize>,
}

/// Requests that are run together.
#[derive(Debug)]
pub(super) struct Batch<T> {
    pub(super) pieces: Vec<Piece<T>>,
    rows: usize,
    opened: Instant,
}

/// The batches of requests that have the same inputs and outputs. Only the last one takes further
/// requests.
#[derive(Debug)]
pub(super) struct Queue<T> {
    rules: Arc<Rules>,
    batches: VecDeque<Batch<T>>,
}

impl<T> Queue<T> {
    pub(super) fn new(rules: Arc<Rules>) -> Self {
        Self { rules, batches: VecDeque::new() }
    }

    /// Adds a request of `rows` rows.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it has too many rows, UNAVAILABLE if the queue is full.
    pub(super) fn push(&mut self, task: Arc<T>, rows: usize, now: Instant) -> Result<(), Status> {
        let most = self.rules.max_request;
        if rows > most {
            return Err(Status::invalid(format!(
                "Task size {rows} is larger than maximum input batch size {most}"
            )));
        }
        self.check_capacity(rows)?;
        let mut start = 0;
        loop {
            let room = self.room(rows - start, now);
            let end = rows.min(start + room);
            self.add(Piece { task: Arc::clone(&task), rows: start..end }, now);
            start = end;
            if start == rows {
                return Ok(());
            }
        }
    }

    /// The next batch, if it is full, closed, or has waited long enough.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Batch<T>> {
        self.ready_at().filter(|time| *time <= now)?;
        self.batches.pop_front()
    }

    /// The time at which the next batch is run; `None` if there is none.
    pub(super) fn ready_at(&self) -> Option<Instant> {
        let next = self.batches.front()?;
        let is_closed = self.batches.len() > 1 || next.rows >= self.rules.max_batch;
        // A time that cannot be represented never comes; the batch is run when it is full.
        if is_closed { Some(next.opened) } else { next.opened.checked_add(self.rules.timeout) }
    }

    /// The rows that fit into the open batch.
    fn open_room(&self) -> usize {
        self.batches.back().map_or(0, |open| self.rules.max_batch.saturating_sub(open.rows))
    }

    fn check_capacity(&self, rows: usize) -> Result<(), Status> {
        // An empty queue has a batch that is open and empty.
        let (count, most) = (self.batches.len().max(1), self.rules.max_enqueued);
        let room = if self.batches.is_empty() { self.rules.max_batch } else { self.open_room() };
        if !self.rules.splits {
            return match rows > room && count >= most {
                true => Err(full(&format!(
                    "currently {count} batches enqueued and max_enqueued_batches is {most}"
                ))),
                false => Ok(()),
            };
        }
        let capacity = most.saturating_sub(count).saturating_mul(self.rules.max_batch);
        let capacity = capacity.saturating_add(room);
        match rows > capacity {
            true => Err(full(&format!(
                "task size is {rows} but scheduling capacity is only {capacity}"
            ))),
            false => Ok(()),
        }
    }

    /// The rows that the last batch takes of a request with so many left; opens another batch if it
    /// takes none.
    fn room(&mut self, rows: usize, now: Instant) -> usize {
        let (room, splits) = (self.open_room(), self.rules.splits);
        let fits = if splits { room > 0 } else { room >= rows };
        if self.batches.is_empty() || !fits {
            self.batches.push_back(Batch { pieces: Vec::new(), rows: 0, opened: now });
            return self.rules.max_batch;
        }
        room
    }

    fn add(&mut self, piece: Piece<T>, now: Instant) {
        let open = self.batches.back_mut().expect("a batch is open");
        if open.pieces.is_empty() {
            open.opened = now;
        }
        open.rows += piece.rows.len();
        open.pieces.push(piece);
    }
}

fn full(detail: &str) -> Status {
    let queue = "The batch scheduling queue to which this task was submitted is full";
    Status::new(Code::Unavailable, format!("{queue}; {detail}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::Parameters, *};

    const SECOND: Duration = Duration::from_secs(1);

    fn queue(parameters: Parameters) -> Queue<char> {
        let parameters = Parameters { batch_timeout_micros: 1_000_000, ..parameters };
        Queue::new(Arc::new(parameters.rules().expect("valid")))
    }

    fn of(max_batch_size: i64, max_enqueued_batches: i64) -> Parameters {
        Parameters { max_batch_size, max_enqueued_batches, ..Parameters::default() }
    }

    fn splitting(max_enqueued_batches: i64) -> Queue<char> {
        queue(Parameters {
            enable_large_batch_splitting: true,
            max_execution_batch_size: Some(4),
            ..of(10, max_enqueued_batches)
        })
    }

    /// Pushes requests with these numbers of rows, called a, b, c and so on.
    fn push(queue: &mut Queue<char>, rows: &[usize], now: Instant) {
        for (rows, name) in rows.iter().zip('a'..) {
            queue.push(Arc::new(name), *rows, now).expect("there is room");
        }
    }

    /// All batches that are ready, as text.
    fn ready(queue: &mut Queue<char>, now: Instant) -> Vec<String> {
        let piece = |Piece { task, rows }: &Piece<char>| format!("{task}{rows:?}");
        let batches = std::iter::from_fn(|| queue.pop(now));
        batches.map(|batch| batch.pieces.iter().map(piece).collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn a_batch_is_run_when_it_is_full_or_has_waited() {
        let (mut queue, now) = (queue(of(4, 10)), Instant::now());
        push(&mut queue, &[1, 2], now);
        assert_eq!(ready(&mut queue, now), Vec::<String>::new());
        assert_eq!(queue.ready_at(), Some(now + SECOND));
        assert_eq!(ready(&mut queue, now + SECOND), ["a0..1 b0..2"]);
        assert_eq!(queue.ready_at(), None);
        push(&mut queue, &[1, 3], now);
        assert_eq!(ready(&mut queue, now), ["a0..1 b0..3"]);
    }

    #[test]
    fn a_request_that_does_not_fit_closes_the_batch() {
        let (mut queue, now) = (queue(of(4, 10)), Instant::now());
        push(&mut queue, &[3, 2, 0], now);
        assert_eq!(ready(&mut queue, now), ["a0..3"]);
        assert_eq!(ready(&mut queue, now + SECOND), ["b0..2 c0..0"]);
    }

    #[test]
    fn a_request_beyond_the_limits_is_refused() {
        let (mut queue, now) = (queue(of(4, 2)), Instant::now());
        let status = queue.push(Arc::new('x'), 5, now).expect_err("too large");
        assert_eq!(status.code, Code::InvalidArgument);
        assert_eq!(status.message, "Task size 5 is larger than maximum input batch size 4");
        push(&mut queue, &[3, 3, 1], now);
        let status = queue.push(Arc::new('x'), 1, now).expect_err("full");
        assert_eq!(status.code, Code::Unavailable);
        assert!(
            status.message.ends_with("currently 2 batches enqueued and max_enqueued_batches is 2")
        );
        assert_eq!(ready(&mut queue, now + SECOND).len(), 2);
        queue.push(Arc::new('x'), 4, now).expect("there is room again");
    }

    #[test]
    fn a_large_request_is_split_over_batches() {
        let (mut queue, now) = (splitting(10), Instant::now());
        push(&mut queue, &[3, 10], now);
        let batches = ["a0..3 b0..1", "b1..5", "b5..9"];
        assert_eq!(ready(&mut queue, now), batches);
        assert_eq!(ready(&mut queue, now + SECOND), ["b9..10"]);
        push(&mut queue, &[8], now);
        assert_eq!(ready(&mut queue, now), ["a0..4", "a4..8"]);
    }

    #[test]
    fn a_request_is_split_only_if_all_of_it_fits() {
        let (mut queue, now) = (splitting(2), Instant::now());
        let status = queue.push(Arc::new('x'), 9, now).expect_err("two batches of four");
        assert!(status.message.ends_with("task size is 9 but scheduling capacity is only 8"));
        push(&mut queue, &[3, 5], now);
        assert!(queue.push(Arc::new('x'), 1, now).is_err());
        assert_eq!(ready(&mut queue, now).len(), 2);
    }
}
