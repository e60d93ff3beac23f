//! The input as a tree model. Rows by themselves, and in the blocks that other kernels score, have
//! the same results. One is explained.
#![no_main]

use outrigger_trees::{Limits, Model, Options, Output, Rows};

/// Rows that are more than a block, and a few.
const ROWS: usize = 19;

/// The most contributions that are computed.
const COLUMNS: usize = 1 << 16;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { depth: 100, ..Limits::default() };
    let read = Model::read(&mut &*bytes, bytes.len() as u64, &limits);
    let Ok(model) = read else { return };
    let width = model.features().clamp(1, 40);
    let values: Vec<_> = (0..ROWS * width).map(value).collect();
    for output in [Output::Value, Output::Margin, Output::Leaf] {
        let options = Options { output, iterations: None };
        let columns = model.columns(&options);
        let mut together = vec![0.0; ROWS * columns];
        model.predict(Rows::new(&values, width).expect("whole rows"), &options, &mut together);
        let mut alone = vec![0.0; columns];
        for (at, row) in values.chunks_exact(width).enumerate() {
            model.predict(Rows::new(row, width).expect("a row"), &options, &mut alone);
            let same = together[at * columns..].iter().zip(&alone);
            let equal = |a: &f32, b: &f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            assert!(same.into_iter().all(|(a, b)| equal(a, b)), "row {at}");
        }
    }
    let explainer = model.explainer(None).ok().filter(|it| it.columns() <= COLUMNS);
    if let Some(explainer) = explainer {
        let rows = Rows::new(&values[..width], width).expect("a row");
        assert!(explainer.explain(rows, &mut vec![0.0; explainer.columns()], &|| true));
    }
});

/// Numbers that are on both sides of most thresholds, some of them missing.
fn value(at: usize) -> f32 {
    match at % 11 {
        0 => f32::NAN,
        1 => f32::INFINITY,
        2 => -0.0,
        _ => (at as f32).sin() * 4.0_f32.powi((at % 7) as i32 - 2),
    }
}
