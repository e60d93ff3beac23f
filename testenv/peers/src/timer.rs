//! Measures the time of a call.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Result;

/// The least time that is measured.
const TIME: Duration = Duration::from_millis(25);

/// Seconds a call, after one that brings code and model into the caches. `call` gets the number of
/// the call.
pub(crate) fn seconds(mut call: impl FnMut(usize) -> Result<()>) -> Result<Value> {
    call(0)?;
    let (start, mut calls) = (Instant::now(), 0);
    // The clock is read after 1, 2, 4, .. calls, so that reading it does not count.
    loop {
        for _ in 0..calls.max(1) {
            call(calls)?;
            calls += 1;
        }
        let elapsed = start.elapsed();
        if elapsed >= TIME {
            return Ok((elapsed.as_secs_f64() / calls as f64).into());
        }
    }
}
