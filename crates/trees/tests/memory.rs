//! Reading a model takes at most twice the memory of its file.

#[path = "support/sample.rs"]
mod sample;

use std::cell::Cell;

use outrigger_testkit::allocator::Reporting;
use outrigger_trees::{Error, Limits, Model};
use sample::Sample;

thread_local! {
    /// The memory in use that this thread allocated, in bytes.
    static HELD: Cell<usize> = const { Cell::new(0) };
    /// The peak of `HELD`.
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static MEASURING: Reporting = Reporting {
    allocated: |bytes| {
        HELD.set(HELD.get().wrapping_add(bytes));
        PEAK.set(PEAK.get().max(HELD.get()));
    },
    freed: |bytes| HELD.set(HELD.get().wrapping_sub(bytes)),
};

/// The peak of the memory that reading takes, and the memory that is held afterwards.
fn read(file: &[u8], limits: &Limits) -> (usize, Result<(Model, usize), Error>) {
    let before = HELD.get();
    PEAK.set(before);
    let model = Model::read(&mut &*file, file.len() as u64, limits);
    let (peak, held) = (PEAK.get() - before, HELD.get() - before);
    (peak, model.map(|model| (model, held)))
}

#[test]
fn the_peak_is_at_most_twice_the_file() {
    let samples = [Sample { trees: 40, depth: 11 }, Sample { trees: 1, depth: 15 }];
    for sample in samples {
        for (format, file) in
            [("JSON", sample.json()), ("UBJSON", sample.ubjson()), ("binary", sample.binary())]
        {
            let (peak, model) = read(&file, &Limits::default());
            let (model, held) = model.expect("a model");
            assert!(peak <= 2 * file.len(), "{format}: {peak} bytes for {}", file.len());
            let memory = model.memory();
            assert!(memory.abs_diff(held) <= held / 100 + 64, "{format}: {memory} of {held} bytes");
            // Half of the memory that is needed is not enough, and no more than it is taken.
            let limit = peak / 2;
            let (peak, refused) =
                read(&file, &Limits { memory: limit as u64, ..Limits::default() });
            assert!(matches!(refused, Err(Error::Memory { .. })), "{format}: {refused:?}");
            assert!(peak <= limit + 4096, "{format}: {peak} bytes of {limit}");
        }
    }
}
