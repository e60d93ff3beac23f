//! The input as a factorisation machine over the leaves of a small tree model, in both modes. A first
//! byte of flags is followed by the leaf mapping, a byte 0xFF, and the FM file. Rows by themselves
//! have the scores that they have among others.
#![no_main]

use outrigger_fm::{
    File, Files, Kind, Limits, Model, Names, Options, Output, Precision, Reading, Rows, SparseRows,
};

const TREES: &[u8] = include_bytes!("../../crates/fm/tests/fixtures/trees.json");

/// Flags of the first byte.
const SOFTMAX: u8 = 1;
const LENIENT: u8 = 2;
const NAMED: u8 = 4;

/// Six rows, more than are scored at once: features of the trees and of the machine, and features of
/// the machine alone.
const ROWS: usize = 6;
const OFFSETS: [u32; ROWS + 1] = [0, 4, 6, 6, 7, 8, 10];
const OF_TREES: ([u64; 10], [f32; 10]) = (
    [0, 2, 5, 1 << 32, 2, 3, 0, 1, 3, 7],
    [1.0, -1.0, 0.0, 2.0, f32::NAN, 3.0, -2.0, 0.5, 0.0, 1e-30],
);
const OF_MACHINE: ([u64; 10], [f32; 10]) = (
    [5, 5, 7, u64::MAX, 9, 1, 1, 8, 5, 0],
    [1.0, 2.0, -0.5, 1e30, 1.0, 0.0, 3.0, f32::NAN, -1.0, 4.0],
);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((flags, files)) = bytes.split_first() else { return };
    let mut files = files.splitn(2, |byte| *byte == 0xFF);
    let (mapping, fm) = (files.next().unwrap_or_default(), files.next().unwrap_or_default());
    let names = Names::read(file(&mut &*mapping), &Limits::default());
    let kind = if flags & SOFTMAX == 0 { Kind::Binary } else { Kind::Softmax };
    let names = names.ok().filter(|_| flags & NAMED != 0);
    let lenient = flags & LENIENT != 0;
    let reading = Reading { lenient, names: names.as_ref(), ..Reading::new(kind) };
    let (mut trees, mut fm, mut leaf_mapping) = (TREES, fm, mapping);
    let files =
        Files { trees: file(&mut trees), fm: file(&mut fm), leaf_mapping: file(&mut leaf_mapping) };
    let Ok(model) = Model::read(files, &reading) else { return };
    assert!(lenient || model.skipped().count == 0, "an entry was skipped");
    for output in [Output::Value, Output::Margin] {
        for precision in [Precision::Single, Precision::Double] {
            score(&model, &Options { output, precision });
        }
    }
});

fn file<'a>(content: &'a mut &[u8]) -> File<'a> {
    let size = content.len() as u64;
    File { content, size }
}

/// Scores all rows together and each by itself.
fn score(model: &Model, options: &Options) {
    let scores = |first: usize, last: usize| {
        let (start, end) = (OFFSETS[first] as usize, OFFSETS[last] as usize);
        let offsets: Vec<_> = OFFSETS[first..=last].iter().map(|at| at - OFFSETS[first]).collect();
        let part = |ids: &'static [u64], weights: &'static [f32]| {
            SparseRows::new(&ids[start..end], &weights[start..end], &offsets).expect("rows")
        };
        let trees = part(&OF_TREES.0, &OF_TREES.1);
        let rows = Rows::new(trees, part(&OF_MACHINE.0, &OF_MACHINE.1)).expect("as many rows");
        let mut out = vec![0.0; rows.len() * model.classes()];
        model.score(rows, options, &mut out);
        out
    };
    let together = scores(0, ROWS);
    let alone: Vec<_> = (0..ROWS).flat_map(|row| scores(row, row + 1)).collect();
    let equal = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    assert!(together.iter().zip(&alone).all(equal), "{together:?} {alone:?}");
}
