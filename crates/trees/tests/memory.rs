//! Reading a model takes at most twice the memory of its file.

#[path = "support/sample.rs"]
mod sample;

use outrigger_testkit::allocator::{self, Reporting, measured};
use outrigger_trees::{Error, Header, Limits, Model};
use sample::Sample;

#[global_allocator]
static MEASURING: Reporting = allocator::MEASURING;

/// The peak of the memory that reading takes, and the memory that is held afterwards.
fn read(file: &[u8], limits: &Limits) -> (usize, Result<(Model, usize), Error>) {
    let (model, memory) = measured(|| Model::read(&mut &*file, file.len() as u64, limits));
    (memory.peak, model.map(|model| (model, memory.held)))
}

#[test]
fn the_peak_is_at_most_twice_the_file() {
    // The nodes of the last one need sixteen bytes each.
    let samples = [(2000, 2), (2000, 4), (40, 11), (1, 15), (1, 16)]
        .map(|(trees, depth)| Sample::full(trees, depth));
    // Trees of so many nodes have the most tables for each.
    let uneven = [(2000, 8), (1000, 16), (500, 32)]
        .map(|(trees, splits)| Sample::uneven(trees, 8, splits, 0));
    for sample in samples.into_iter().chain(uneven) {
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

/// Timing the kernels takes 256 bytes for each feature that a split uses. Without memory for that,
/// they are not timed.
#[test]
fn the_peak_of_models_with_many_features_is_within_the_limit() {
    // Slots of features 8 apart have the largest table. The vector of trees has half of its room
    // left after these numbers of trees.
    for (trees, splits, step) in [(4619, 8, 8), (2054, 16, 8), (1370, 32, 8), (1500, 16, 1)] {
        // Splits have features of their own. Nodes have eight bytes nevertheless.
        let sample = Sample::uneven(trees, 8, splits, step);
        for (format, file) in [("UBJSON", sample.ubjson()), ("binary", sample.binary())] {
            let memory = 2 * file.len() as u64 + Limits::OVERHEAD;
            let (peak, model) = read(&file, &Limits { memory, ..Limits::default() });
            let name = format!("{format}, {trees} trees of {splits} splits {step} apart");
            let (model, held) = model.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(peak as u64 <= memory, "{name}: {peak} of {memory}");
            let memory = model.memory();
            assert!(memory.abs_diff(held) <= held / 100 + 64, "{name}: {memory} of {held} bytes");
        }
    }
}

/// True if models have tables for vectors of AVX-512.
fn has_tables() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        has!("avx512f") && has!("avx512bw") && has!("avx512cd")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[test]
fn a_model_takes_18_bytes_for_a_node_480_for_a_tree_and_its_tables() {
    let trees = 400;
    let file = Sample::full(trees, 6).ubjson();
    let model = Model::read(&mut &*file, file.len() as u64, &Limits::default()).expect("a model");
    // Complete trees of six levels have one table of 32 nodes.
    let tables = if has_tables() { 256 + 32 * 8 } else { 0 };
    let most = trees * (18 * 127 + 480 + tables);
    assert!(model.memory() <= most + 4096, "{} bytes, of {most}", model.memory());
    assert!(model.memory() >= most * 9 / 10, "{} bytes, of {most}", model.memory());
}

#[test]
fn tables_take_at_most_28_bytes_for_a_node_and_252_for_a_tree() {
    for splits in [8, 16, 32] {
        let (trees, nodes) = (400, 2 * splits + 1);
        let file = Sample::uneven(trees, 8, splits, 0).binary();
        let read = Model::read(&mut &*file, file.len() as u64, &Limits::default());
        let memory = read.expect("a model").memory();
        let tables = if has_tables() { 28 * nodes + 252 } else { 0 };
        let most = trees * (18 * nodes + 480 + tables);
        assert!(memory <= most + 4096, "{nodes} nodes: {memory} bytes, of {most}");
        // The bound is not far away. The smaller trees are, the less of their 480 bytes they need.
        assert!(!has_tables() || memory >= most * 6 / 10, "{nodes} nodes: {memory} of {most}");
    }
}

#[test]
fn a_header_takes_no_memory_for_trees() {
    let sample = Sample::full(40, 11);
    for file in [sample.json(), sample.ubjson(), sample.binary()] {
        let size = file.len() as u64;
        let read = || Header::read(&mut &*file, size, &Limits::default());
        let (header, memory) = measured(read);
        assert_eq!(header.expect("a header").iterations(), 40);
        // The buffer of the file has 64 KiB.
        assert!(memory.peak < 80 << 10, "{} bytes for {size}", memory.peak);
    }
}
