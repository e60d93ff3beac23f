//! The input as a tree model. Rows by themselves, and in the blocks that other kernels score, have
//! the same results, in f64 too, and so have sparse rows of the same values. One is explained, in both forms. A
//! file with a valid model has a valid header.
#![no_main]

use outrigger_trees::{AnyRows, Columns, Header, Limits, Model, Options, Output, Rows, SparseRows};

/// Rows that are more than a block, and a few.
const ROWS: usize = 19;

/// The most contributions that are computed.
const COLUMNS: usize = 1 << 16;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { depth: 100, ..Limits::default() };
    let read = Model::read(&mut &*bytes, bytes.len() as u64, &limits);
    let header = Header::read(&mut &*bytes, bytes.len() as u64, &limits);
    let Ok(model) = read else { return };
    let header = header.expect("a header");
    assert_eq!(header.features(), model.features());
    let width = model.features().clamp(1, 40);
    let values: Vec<_> = (0..ROWS * width).map(value).collect();
    let ids: Vec<_> = (0..ROWS).flat_map(|_| 0..width as u64).collect();
    let offsets: Vec<_> = (0..=ROWS).map(|row| (row * width) as u32).collect();
    let sparse = SparseRows::new(&ids, &values, &offsets).expect("rows");
    let equal = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    for output in [Output::Value, Output::Margin, Output::Leaf] {
        let options = Options { output, iterations: None };
        let columns = model.columns(&options);
        let mut together = vec![0.0; ROWS * columns];
        model.predict(Rows::new(&values, width).expect("whole rows"), &options, &mut together);
        let mut of_sparse = vec![0.0; ROWS * columns];
        model.predict(sparse, &options, &mut of_sparse);
        assert!(together.iter().zip(&of_sparse).all(equal), "sparse rows differ");
        let mut alone = vec![0.0; columns];
        for (at, row) in values.chunks_exact(width).enumerate() {
            model.predict(Rows::new(row, width).expect("a row"), &options, &mut alone);
            let mut wide = vec![0.0; columns];
            model.predict_f64(Rows::new(row, width).expect("a row"), &options, &mut wide);
            let narrow: Vec<_> = wide.into_iter().map(|value| value as f32).collect();
            assert!(alone.iter().zip(&narrow).all(equal), "row {at} in f64");
            let mut same = together[at * columns..].iter().zip(&alone);
            assert!(same.all(equal), "row {at}");
        }
    }
    let one = Rows::new(&values[..width], width).expect("a row");
    for (columns, rows) in
        [(Columns::All, AnyRows::from(one)), (Columns::Used, sparse.slice(0..1).into())]
    {
        let explainer = model.explainer(None, columns).ok().filter(|it| it.columns() <= COLUMNS);
        if let Some(explainer) = explainer {
            assert!(explainer.explain(rows, &mut vec![0.0; explainer.columns()], &|| true));
        }
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
