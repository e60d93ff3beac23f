//! Variables TensorFlow reads when it is opened.

use std::{env, fs};

/// What is set unless it is already.
const DEFAULTS: [(&str, &str); 2] = [
    // Else oneDNN's own pool keeps the weights of unloaded models for ever.
    ("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "1"),
    // Warnings and errors only.
    ("TF_CPP_MIN_LOG_LEVEL", "1"),
];

/// Sets what TensorFlow should find in its environment. To be called first
/// thing in `main`: with more than one thread it changes nothing.
pub fn prepare() {
    if !single_threaded() {
        return;
    }
    for (name, value) in DEFAULTS {
        if env::var_os(name).is_none() {
            // SAFETY: the process has this one thread, so nobody else reads or
            // writes the environment meanwhile.
            unsafe { env::set_var(name, value) };
        }
    }
}

fn single_threaded() -> bool {
    fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}
