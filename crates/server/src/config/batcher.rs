//! The key `batcher` of an engine: calls that are joined.

use std::sync::Arc;

use outrigger_batcher::{Batched, Settings};
use serde_json::Value;

use super::{
    Period, Problem, Size,
    kinds::Make,
    layers::{join, typed},
    section::section,
};

section! {
    /// Joins calls of several requests into one run: the key `batcher` of an engine in `engines`
    /// (docs/engine.md#batcher). `{}` stands for the defaults; without the key nothing is joined.
    Batcher {
        /// The maximum number of rows of a batch. A row is a user, or for a model with joined inputs a
        /// treatment. A call of as many rows or more runs by itself.
        max_rows: u32 = "64";
        /// The maximum time that a call waits for others, also while the engine is idle; at most half
        /// of the time that is left before its deadline.
        max_delay: Period = "1ms";
        /// The maximum number of concurrent batches of a version in the engine. Further calls wait, and
        /// are joined meanwhile.
        max_in_flight: u32 = "2";
        /// The maximum number of calls of a version that wait; more are answered OVERLOADED.
        max_calls: u32 = "1024";
        /// The maximum size of the tensors of these calls; more are answered OVERLOADED.
        max_bytes: Size = "64MiB";
    }
}

impl Batcher {
    /// Reads and checks the value of `key`.
    ///
    /// # Errors
    /// All problems with it.
    pub(super) fn read_value(key: &str, value: Value) -> Result<Self, Vec<Problem>> {
        let problem = |inner: &str, message: String| Problem::new(join(key, inner), message);
        let batcher: Self =
            typed(value).map_err(|(inner, message)| vec![problem(&inner, message)])?;
        let positive = [
            ("max_rows", batcher.max_rows.into()),
            ("max_in_flight", batcher.max_in_flight.into()),
            ("max_calls", batcher.max_calls.into()),
            ("max_bytes", batcher.max_bytes.0),
        ];
        let none = positive.into_iter().filter(|(_, number)| *number == 0);
        let problems: Vec<_> =
            none.map(|(name, _)| problem(name, "must be at least 1".to_owned())).collect();
        if problems.is_empty() { Ok(batcher) } else { Err(problems) }
    }

    /// The constructor `make`, with batches for its engine.
    pub(super) fn around(self, make: Make) -> Make {
        let settings = Settings {
            max_rows: self.max_rows as usize,
            max_delay: self.max_delay.0,
            max_in_flight: self.max_in_flight as usize,
            max_calls: self.max_calls as usize,
            max_bytes: usize::try_from(self.max_bytes.0).unwrap_or(usize::MAX),
        };
        Box::new(move |context| {
            let engine = make(context)?;
            Ok(Arc::new(Batched::new(engine, context.engine, settings, context.budget)))
        })
    }
}
