//! Encodes `ConfigProto` and `RunOptions`, of which only a few integer fields are used.

use outrigger_proto::raw::write::{put_bytes, put_int};

/// `ConfigProto` with the numbers of threads; zero keeps TensorFlow's default.
///
/// Disables spinning of idle threads, which would take CPU time from requests and the
/// control plane on the same cores. Each session has threads of its own for operations: one that
/// does not end keeps none from other models.
pub(super) fn session_config(intra_op: u32, inter_op: u32) -> Vec<u8> {
    const INTRA_OP_PARALLELISM_THREADS: u32 = 2;
    const INTER_OP_PARALLELISM_THREADS: u32 = 5;
    const USE_PER_SESSION_THREADS: u32 = 9;
    const EXPERIMENTAL: u32 = 16;
    const DISABLE_THREAD_SPINNING: u32 = 9;
    let mut config = Vec::new();
    field(&mut config, INTRA_OP_PARALLELISM_THREADS, intra_op.into());
    field(&mut config, INTER_OP_PARALLELISM_THREADS, inter_op.into());
    field(&mut config, USE_PER_SESSION_THREADS, 1);
    let mut experimental = Vec::new();
    field(&mut experimental, DISABLE_THREAD_SPINNING, 1);
    put_bytes(EXPERIMENTAL, &experimental, &mut config);
    config
}

/// `RunOptions` with a time limit in milliseconds.
pub(super) fn run_options(timeout_ms: u64) -> Vec<u8> {
    const TIMEOUT_IN_MS: u32 = 2;
    let mut options = Vec::new();
    field(&mut options, TIMEOUT_IN_MS, timeout_ms);
    options
}

/// `RunOptions` that execute the graph on the caller's thread.
pub(super) fn caller_run_options() -> Vec<u8> {
    const INTER_OP_THREAD_POOL: u32 = 3;
    const CALLER: i64 = -1;
    let mut options = Vec::new();
    field(&mut options, INTER_OP_THREAD_POOL, CALLER as u64);
    options
}

/// `RunOptions` that execute the graph on the caller's thread and trace every operation.
pub(super) fn traced_run_options() -> Vec<u8> {
    const TRACE_LEVEL: u32 = 1;
    const FULL_TRACE: u64 = 3;
    let mut options = caller_run_options();
    field(&mut options, TRACE_LEVEL, FULL_TRACE);
    options
}

fn field(message: &mut Vec<u8>, number: u32, value: u64) {
    if value != 0 {
        put_int(number, value, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_that_are_set_are_written() {
        assert_eq!(session_config(2, 3), [0x10, 2, 0x28, 3, 0x48, 1, 0x82, 1, 2, 0x48, 1]);
        assert_eq!(session_config(0, 0), [0x48, 1, 0x82, 1, 2, 0x48, 1]);
        assert_eq!(run_options(300), [0x10, 0xac, 0x02]);
        assert_eq!(caller_run_options(), [&[0x18][..], &[0xff; 9], &[1]].concat());
        assert_eq!(traced_run_options(), [&[0x18][..], &[0xff; 9], &[1, 0x08, 3]].concat());
    }
}
