//! Environment variables that TensorFlow reads when it is opened.

use std::{env, fs};

/// Values for variables that are not set.
const DEFAULTS: [(&str, &str); 2] = [
    // Without it oneDNN's own memory pool keeps the weights of unloaded models for ever.
    ("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "1"),
    // Log warnings and errors only.
    ("TF_CPP_MIN_LOG_LEVEL", "1"),
];

/// Sets defaults for TensorFlow's environment variables. Must be called first in `main`:
/// once the process has more than one thread, it does nothing.
pub fn prepare() {
    if !single_threaded() {
        return;
    }
    for (name, value) in DEFAULTS {
        if env::var_os(name).is_none() {
            // SAFETY: this is the only thread, so nothing else reads or writes the
            // environment meanwhile.
            unsafe { env::set_var(name, value) };
        }
    }
}

fn single_threaded() -> bool {
    fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}
