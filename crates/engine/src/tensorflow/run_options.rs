//! `ConfigProto` and `RunOptions`, of which one or two integer fields are used.

use prost::encoding::{WireType, encode_key, encode_varint};

/// `ConfigProto` with the numbers of threads; zero leaves TensorFlow's default.
pub(super) fn session_config(intra_op: u32, inter_op: u32) -> Vec<u8> {
    const INTRA_OP_PARALLELISM_THREADS: u32 = 2;
    const INTER_OP_PARALLELISM_THREADS: u32 = 5;
    let mut config = Vec::new();
    field(&mut config, INTRA_OP_PARALLELISM_THREADS, intra_op.into());
    field(&mut config, INTER_OP_PARALLELISM_THREADS, inter_op.into());
    config
}

/// `RunOptions` with a time limit in milliseconds.
pub(super) fn run_options(timeout_ms: u64) -> Vec<u8> {
    const TIMEOUT_IN_MS: u32 = 2;
    let mut options = Vec::new();
    field(&mut options, TIMEOUT_IN_MS, timeout_ms);
    options
}

fn field(message: &mut Vec<u8>, number: u32, value: u64) {
    if value != 0 {
        encode_key(number, WireType::Varint, message);
        encode_varint(value, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_only_what_is_set() {
        assert_eq!(session_config(2, 3), [0x10, 2, 0x28, 3]);
        assert!(session_config(0, 0).is_empty());
        assert_eq!(run_options(300), [0x10, 0xac, 0x02]);
    }
}
