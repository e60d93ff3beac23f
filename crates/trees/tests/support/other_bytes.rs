//! Files one of whose bytes is another.

/// Calls `use_it` with the file, of which every fifth byte in turn has one bit flipped, or is one of
/// `others`. Fuzzing (fuzz/fuzz_targets/trees.rs) tries more.
pub(crate) fn try_each(mut file: Vec<u8>, others: &[u8], use_it: impl Fn(&[u8]) -> bool) {
    for at in (0..file.len()).step_by(5) {
        let byte = file[at];
        for other in [byte ^ 1].iter().chain(others) {
            file[at] = *other;
            use_it(&file);
        }
        file[at] = byte;
    }
}
