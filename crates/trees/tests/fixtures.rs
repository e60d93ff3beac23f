//! Models that several versions of XGBoost wrote, and the results that they gave. The fixtures are
//! written by `outrigger_testenv.trees.generate` (docs/contributing.md).

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use outrigger_testkit::tables;
use outrigger_trees::{
    Columns, Error, Header, Limits, Model, Options, Output, Rows, SparseRows, Unexplained,
};

type Table = tables::Table<f32>;

fn fixtures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let entries =
        |path: &Path| fs::read_dir(path).expect("a directory").map(|e| e.expect("e").path());
    let files = entries(&root).flat_map(|version| Vec::from_iter(entries(&version)));
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|e| e != "txt")).collect();
    files.sort();
    assert!(files.len() > 100, "{} fixtures", files.len());
    files
}

fn is_named(path: &Path, name: &str) -> bool {
    path.file_stem().is_some_and(|stem| stem == name)
}

fn read(path: &Path) -> Result<Model, Error> {
    let file = fs::read(path).expect("a file");
    Model::read(&mut file.as_slice(), file.len() as u64, &Limits::default())
}

fn expected(path: &Path) -> HashMap<String, Table> {
    let text = fs::read_to_string(path.with_extension("txt")).expect("a text file");
    tables::read(&text)
}

fn predict(model: &Model, (width, values): &Table, options: &Options) -> Table {
    let rows = Rows::new(values, *width).expect("whole rows");
    let columns = model.columns(options);
    let mut out = vec![f32::NAN; rows.len() * columns];
    model.predict(rows, options, &mut out);
    // Single rows are scored by another kernel than many.
    let mut alone = vec![f32::NAN; columns];
    for (row, out) in values.chunks_exact(*width).zip(out.chunks_exact(columns.max(1))) {
        model.predict(Rows::new(row, *width).expect("a row"), options, &mut alone);
        assert_eq!(alone, out);
    }
    let mut sparse = vec![f32::NAN; out.len()];
    Sparse::new(values, *width).predict(model, options, &mut sparse);
    assert_eq!(sparse, out);
    (columns, out)
}

/// The same rows with ids for the values that are not missing.
struct Sparse {
    ids: Vec<u64>,
    weights: Vec<f32>,
    offsets: Vec<u32>,
}

impl Sparse {
    fn new(values: &[f32], width: usize) -> Self {
        let mut sparse = Self { ids: Vec::new(), weights: Vec::new(), offsets: vec![0] };
        for row in values.chunks_exact(width) {
            // The order does not matter.
            for (id, value) in row.iter().enumerate().rev().filter(|(_, value)| !value.is_nan()) {
                sparse.ids.push(id as u64);
                sparse.weights.push(*value);
            }
            sparse.offsets.push(sparse.ids.len() as u32);
        }
        sparse
    }

    /// Rows of which each entry is a line: the number of the row, the id and the weight. The last
    /// rows may have no entries.
    fn of_entries((width, entries): &Table, rows: usize) -> Self {
        let lines: Vec<_> = entries.chunks_exact(*width).collect();
        let end = |row| lines.partition_point(|line| line[0] < row as f32) as u32;
        Self {
            ids: lines.iter().map(|line| line[1] as u64).collect(),
            weights: lines.iter().map(|line| line[2]).collect(),
            offsets: (0..=rows).map(end).collect(),
        }
    }

    fn rows(&self) -> SparseRows<'_> {
        SparseRows::new(&self.ids, &self.weights, &self.offsets).expect("rows")
    }

    fn predict(&self, model: &Model, options: &Options, out: &mut [f32]) {
        model.predict(self.rows(), options, out);
    }
}

fn options(output: Output) -> Options {
    Options { output, iterations: None }
}

/// The numbers that differ, as text, if any do.
fn difference(found: &Table, expected: &Table, ulps: u32) -> Option<String> {
    let near = |a: &f32, b: &f32| a.to_bits().abs_diff(b.to_bits()) <= ulps;
    let same = found.0 == expected.0
        && found.1.len() == expected.1.len()
        && found.1.iter().zip(&expected.1).all(|(a, b)| near(a, b));
    (!same).then(|| format!("\n found    {found:?}\n expected {expected:?}"))
}

/// Compares the results of `name` for all models that have them.
fn compare(rows: &str, name: &str, ulps: u32, options: impl Fn(&Model) -> Options) {
    let mut wrong = Vec::new();
    for path in fixtures().into_iter().filter(|path| !is_named(path, "linear")) {
        let tables = expected(&path);
        let Some(expected) = tables.get(name) else { continue };
        let model = read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let found = predict(&model, &tables[rows], &options(&model));
        if let Some(difference) = difference(&found, expected, ulps) {
            wrong.push(format!("{path:?}: {difference}"));
        }
    }
    assert!(wrong.is_empty(), "{} models differ\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn margins_are_equal_in_every_bit() {
    compare("rows", "margin", 0, |_| options(Output::Margin));
}

#[test]
fn leaves_are_equal() {
    compare("rows", "leaf", 0, |_| options(Output::Leaf));
}

#[test]
fn leaves_as_integers_are_equal() {
    for path in fixtures().into_iter().filter(|path| !is_named(path, "linear")) {
        let tables = expected(&path);
        let Some((columns, leaves)) = tables.get("leaf") else { continue };
        let model = read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let (width, values) = &tables["rows"];
        let mut found = vec![u32::MAX; leaves.len()];
        model.leaves(Rows::new(values, *width).expect("whole rows"), None, &mut found);
        let expected: Vec<_> = leaves.iter().map(|leaf| *leaf as u32).collect();
        assert_eq!((model.width(Output::Leaf), found), (*columns, expected), "{path:?}");
    }
}

#[test]
fn values_are_equal_but_for_the_mathematical_library() {
    compare("rows", "value", 2, |_| options(Output::Value));
}

/// XGBoost 0.90 and 1.0, and 1.3 for dart, add the base score to the sum of the leaves, where later
/// versions and this crate begin with it. Other tests compare their files with the results of XGBoost 1.5.
#[test]
fn results_of_early_versions_are_equal_but_for_the_order_of_the_sum() {
    let mut count = 0;
    for path in fixtures().into_iter().filter(|path| !is_named(path, "linear")) {
        let tables = expected(&path);
        let all = [("value", Output::Value, None), ("margin", Output::Margin, None)];
        for (name, output, iterations) in
            all.into_iter().chain([("first", Output::Margin, Some(0..1))])
        {
            let Some((_, expected)) = tables.get(&format!("own-{name}")) else { continue };
            let model = read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            let (_, found) = predict(&model, &tables["rows"], &Options { output, iterations });
            if is_named(&path, "hinge") {
                // XGBoost from 1.0 on makes a class, 1, of the base score 0.5 of an older file, and
                // so does this crate.
                let near = |(a, b): (&f32, &f32)| (a - b - 0.5).abs() <= 1e-6;
                assert!(
                    name == "value" || found.iter().zip(expected).all(near),
                    "{path:?}: {name}"
                );
                continue;
            }
            assert_eq!(found.len(), expected.len(), "{path:?}: {name}");
            let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6 * b.abs().max(1.0);
            let same = found.iter().zip(expected).all(near);
            assert!(same, "{path:?}: {name}\n found    {found:?}\n expected {expected:?}");
            count += 1;
        }
    }
    assert!(count > 80, "{count} results");
}

/// XGBoost before 3.3 computes contributions in another way, in f32.
#[test]
fn contributions_are_equal_but_for_the_precision() {
    let mut count = 0;
    for path in fixtures().into_iter().filter(|path| !is_named(path, "linear")) {
        let tables = expected(&path);
        let Some((columns, expected)) = tables.get("contributions") else { continue };
        let model = read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let explainer =
            model.explainer(None, Columns::All).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        assert_eq!(explainer.columns(), *columns, "{path:?}");
        let (width, values) = &tables["rows"];
        let mut found = vec![f32::NAN; expected.len()];
        let rows = Rows::new(values, *width).expect("whole rows");
        assert!(explainer.explain(rows, &mut found, &|| true));
        let margins = predict(&model, &tables["rows"], &options(Output::Margin)).1;
        for (at, (of_output, margin)) in found.chunks(width + 1).zip(&margins).enumerate() {
            let expected = &expected[at * (width + 1)..];
            let near = |(found, expected): (&f32, &f32)| (found - expected).abs() < 1e-4;
            assert!(of_output.iter().zip(expected).all(near), "{path:?} {of_output:?}");
            let sum: f32 = of_output.iter().sum();
            assert!((sum - margin).abs() < 1e-4 * margin.abs().max(1.0), "{path:?} {sum} {margin}");
        }
        // Sparse rows have those of the columns that splits use; the others have 0.
        let (used, sparse) = explained(&model, Sparse::new(values, *width).rows());
        let of_used = |of_output: &[f32]| {
            let of_columns = used.iter().map(|column| of_output[*column as usize]);
            of_columns.chain([of_output[*width]]).collect::<Vec<_>>()
        };
        let expected: Vec<_> = found.chunks(width + 1).flat_map(of_used).collect();
        assert_eq!(sparse, expected, "{path:?}");
        let is_unused = |column: &usize| !used.contains(&(*column as u64));
        let mut outputs = found.chunks(width + 1);
        assert!(outputs.all(|it| (0..*width).filter(is_unused).all(|column| it[column] == 0.0)));
        count += 1;
    }
    assert!(count > 20, "{count} models");
}

/// The columns that splits use, and their contributions.
fn explained(model: &Model, rows: SparseRows<'_>) -> (Vec<u64>, Vec<f32>) {
    let explainer = model.explainer(None, Columns::Used).expect("contributions");
    let mut found = vec![f32::NAN; rows.len() * explainer.columns()];
    assert!(explainer.explain(rows, &mut found, &|| true));
    (explainer.used(), found)
}

/// Rows that XGBoost takes for complete are among them.
#[test]
fn contributions_of_repeated_ids_add_up_to_the_margin() {
    let mut count = 0;
    for path in fixtures().into_iter().filter(|path| !is_named(path, "linear")) {
        let tables = expected(&path);
        let Some(entries) = tables.get("entries") else { continue };
        let model = read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let (columns, margins) = &tables["entries-margin"];
        let rows = Sparse::of_entries(entries, margins.len() / columns);
        let (used, found) = explained(&model, rows.rows());
        for (of_output, margin) in found.chunks(used.len() + 1).zip(margins) {
            let sum: f32 = of_output.iter().sum();
            assert!((sum - margin).abs() < 1e-4 * margin.abs().max(1.0), "{path:?} {sum} {margin}");
        }
        count += 1;
    }
    assert!(count > 15, "{count} models");
}

#[test]
fn leaves_with_vectors_are_explained_if_the_file_has_covers() {
    let (mut with, mut without) = (0, 0);
    for path in fixtures().into_iter().filter(|path| is_named(path, "vector-leaves")) {
        let (model, tables) = (read(&path).expect("a model"), expected(&path));
        // XGBoost has written them since 3.2.
        let explainer = match model.explainer(None, Columns::All) {
            Ok(explainer) => explainer,
            Err(error) => {
                assert_eq!(error, Unexplained::NoCovers, "{path:?}");
                without += 1;
                continue;
            }
        };
        with += 1;
        let (width, values) = &tables["rows"];
        let rows = Rows::new(values, *width).expect("whole rows");
        let mut found = vec![f32::NAN; rows.len() * explainer.columns()];
        assert!(explainer.explain(rows, &mut found, &|| true));
        for (of_output, margin) in found.chunks(width + 1).zip(&tables["margin"].1) {
            let sum: f32 = of_output.iter().sum();
            assert!((sum - margin).abs() < 1e-4 * margin.abs().max(1.0), "{path:?} {sum} {margin}");
        }
    }
    assert_eq!((with, without), (2, 2));
}

#[test]
fn margins_of_some_iterations_are_equal() {
    let some = |iterations| Options { output: Output::Margin, iterations: Some(iterations) };
    compare("rows", "first", 0, |_| some(0..1));
    compare("rows", "others", 0, |model| some(1..model.iterations()));
}

#[test]
fn margins_of_infinite_features_are_equal() {
    compare("infinite", "infinite-margin", 0, |_| options(Output::Margin));
}

/// XGBoost 1.5 was given these rows as they are. XGBoost Serving passes on the lower 32 bits of ids.
#[test]
fn ids_that_are_repeated_or_are_no_columns_count_as_in_xgboost() {
    let mut count = 0;
    for path in fixtures().into_iter().filter(|path| !is_named(path, "linear")) {
        let tables = expected(&path);
        let Some(entries) = tables.get("entries") else { continue };
        let model = read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let rows = tables["entries-margin"].1.len() / tables["entries-margin"].0;
        let plain = Sparse::of_entries(entries, rows);
        let wide = plain.ids.iter().zip(0..).map(|(id, at)| id | (at % 3) << 32).collect();
        let wide = Sparse { ids: wide, ..Sparse::of_entries(entries, rows) };
        for (name, output) in [("margin", Output::Margin), ("leaf", Output::Leaf)] {
            let Some((columns, expected)) = tables.get(&format!("entries-{name}")) else {
                continue;
            };
            for rows in [plain.rows(), wide.rows().truncated()] {
                let (options, mut found) = (options(output), vec![f32::NAN; expected.len()]);
                model.predict(rows, &options, &mut found);
                assert_eq!((model.columns(&options), &found), (*columns, expected), "{path:?}");
                for (at, expected) in expected.chunks_exact(*columns).enumerate() {
                    let mut found = vec![f32::NAN; *columns];
                    model.predict(rows.slice(at..at + 1), &options, &mut found);
                    assert_eq!(found, expected, "{path:?}: row {at}");
                }
            }
        }
        count += 1;
    }
    assert!(count > 15, "{count} models");
}

#[test]
fn linear_models_are_refused_by_name() {
    let mut count = 0;
    for path in fixtures().into_iter().filter(|path| is_named(path, "linear")) {
        let error = read(&path).expect_err("a linear model");
        assert!(matches!(error, Error::Unsupported(_)), "{path:?}: {error}");
        assert!(error.to_string().contains("gblinear"), "{path:?}: {error}");
        count += 1;
    }
    assert_eq!(count, 4);
}

#[test]
fn names_and_the_best_iteration_are_read() {
    let named = |name| {
        fixtures().into_iter().filter(move |path| is_named(path, name)).map(|path| {
            let model = read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            (path, model)
        })
    };
    for (path, model) in named("squared") {
        let names = model.feature_names();
        // Neither has the binary format names, nor any file of XGBoost before 1.4.
        let is_early =
            ["1.0.2", "1.3.3"].iter().any(|version| path.iter().any(|it| it == *version));
        match is_early || path.extension().is_some_and(|ending| ending == "bin") {
            true => assert!(names.is_empty(), "{path:?}: {names:?}"),
            false => assert_eq!(names, ["age", "länge", "a \"b\"", "x(0)", "e"], "{path:?}"),
        }
        assert_eq!((model.features(), model.groups(), model.iterations()), (5, 1, 3), "{path:?}");
        assert_eq!(model.best_iteration(), None, "{path:?}");
    }
    for (path, model) in named("logistic") {
        assert_eq!(model.best_iteration(), Some(1), "{path:?}");
    }
    for (path, model) in named("softmax") {
        let widths =
            [Output::Value, Output::Margin, Output::Leaf].map(|output| model.width(output));
        assert_eq!(widths, [1, 3, 9], "{path:?}");
    }
}

#[test]
fn a_header_is_that_of_the_whole_model() {
    for path in fixtures() {
        let file = fs::read(&path).expect("a file");
        let header = Header::read(&mut file.as_slice(), file.len() as u64, &Limits::default());
        match (header, read(&path)) {
            (Ok(header), Ok(model)) => assert_eq!(&header, model.header(), "{path:?}"),
            (Err(Error::Unsupported(_)), Err(Error::Unsupported(_))) => {}
            (header, model) => panic!("{path:?}: {header:?} {:?}", model.err()),
        }
    }
}
