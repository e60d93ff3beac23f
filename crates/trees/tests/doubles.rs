//! Models that LightGBM and CatBoost wrote, and the results that they gave in f64. The fixtures are
//! written by `outrigger_testenv.trees.doubles` (docs/contributing.md).

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use outrigger_testkit::tables;
use outrigger_trees::{Columns, Error, Library, Limits, Model, Options, Output, Rows, Unexplained};

type Table = tables::Table<f64>;

/// Relative differences that are allowed: of margins, and of values, which depend on the
/// mathematical library.
const MARGIN: f64 = 1e-12;
const VALUE: f64 = 1e-12;

/// Files with results of their library.
fn fixtures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doubles");
    let entries =
        |path: &Path| fs::read_dir(path).expect("a directory").map(|e| e.expect("e").path());
    let files = entries(&root).flat_map(|version| Vec::from_iter(entries(&version)));
    let is_result = |path: &Path| path.extension().is_some_and(|ending| ending == "txt");
    let mut files: Vec<_> =
        files.filter(|path| !is_result(path) && path.with_extension("txt").exists()).collect();
    files.sort();
    assert!(files.len() > 50, "{} fixtures", files.len());
    files
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doubles").join(name)
}

fn read(path: &Path) -> Result<Model, Error> {
    let file = fs::read(path).expect("a file");
    Model::read(&mut file.as_slice(), file.len() as u64, &Limits::default())
}

fn model(path: &Path) -> Model {
    read(path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

fn expected(path: &Path) -> HashMap<String, Table> {
    let text = fs::read_to_string(path.with_extension("txt")).expect("a text file");
    tables::read(&text)
}

/// True for equal numbers, and for two that are NaN.
fn is_same((a, b): (&f64, &f64)) -> bool {
    a == b || a.is_nan() && b.is_nan()
}

/// The results for rows, which are the same for all rows together, for each by itself, and, in f32,
/// for those of the interface in f32.
fn predict(model: &Model, (width, values): &Table, options: &Options) -> Table {
    let values: Vec<_> = values.iter().map(|value| *value as f32).collect();
    let rows = Rows::new(&values, *width).expect("whole rows");
    let columns = model.columns(options);
    let mut out = vec![f64::NAN; rows.len() * columns];
    model.predict_f64(rows, options, &mut out);
    let mut alone = vec![f64::NAN; columns];
    for (row, out) in values.chunks_exact(*width).zip(out.chunks_exact(columns.max(1))) {
        model.predict_f64(Rows::new(row, *width).expect("a row"), options, &mut alone);
        assert!(alone.iter().zip(out).all(is_same), "alone");
    }
    let mut single = vec![f32::NAN; out.len()];
    model.predict(rows, options, &mut single);
    let narrow: Vec<_> = out.iter().map(|value| f64::from(*value as f32)).collect();
    let single: Vec<_> = single.into_iter().map(f64::from).collect();
    assert!(single.iter().zip(&narrow).all(is_same), "in f32");
    (columns, out)
}

/// Compares the results of `name` for all models that have them.
fn compare(name: &str, tolerance: f64, options: impl Fn(&Model) -> Options) {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for path in fixtures() {
        let tables = expected(&path);
        let Some(expected) = tables.get(name) else { continue };
        let model = model(&path);
        let found = predict(&model, &tables["rows"], &options(&model));
        let near = |(a, b): (&f64, &f64)| {
            a == b || (a - b).abs() <= tolerance * b.abs() || a.is_nan() && b.is_nan()
        };
        let lengths = (found.0, found.1.len()) == (expected.0, expected.1.len());
        if !lengths || !found.1.iter().zip(&expected.1).all(near) {
            wrong.push(format!("{path:?}:\n found    {found:?}\n expected {expected:?}"));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{} models differ\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 30, "{count} models have {name}");
}

fn options(output: Output) -> Options {
    Options { output, iterations: None }
}

#[test]
fn margins_are_equal() {
    compare("margin", MARGIN, |_| options(Output::Margin));
}

#[test]
fn values_are_equal() {
    compare("value", VALUE, |_| options(Output::Value));
}

#[test]
fn leaves_are_equal() {
    compare("leaf", 0.0, |_| options(Output::Leaf));
}

#[test]
fn rows_of_f64_are_compared_as_lightgbm_compares_them() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in fixtures() {
        let tables = expected(&path);
        let file = fs::read(&path).expect("a file");
        let size = file.len() as u64;
        let model = Model::read_for_f64(&mut &file[..], size, &Limits::default()).expect("a model");
        // Rows of f32 have the results of the fixtures too, as numbers of either type.
        let single = tables.get("rows").map(|(width, rows)| {
            (*width, rows.iter().map(|value| f64::from(*value as f32)).collect())
        });
        let cases = [(single.as_ref(), ""), (tables.get("doubles"), "doubles-")];
        for (rows, names) in cases {
            let Some((width, rows)) = rows else { continue };
            for (name, output) in [("margin", Output::Margin), ("leaf", Output::Leaf)] {
                let Some((_, expected)) = tables.get(&format!("{names}{name}")) else { continue };
                let mut found = vec![f64::NAN; expected.len()];
                let rows = Rows::new(rows, *width).expect("whole rows");
                model.predict_f64(rows, &options(output), &mut found);
                let near =
                    |(a, b): (&f64, &f64)| is_same((a, b)) || (a - b).abs() <= MARGIN * b.abs();
                if !found.iter().zip(expected).all(near) {
                    wrong.push(format!("{path:?} {names}{name}"));
                }
                count += usize::from(!names.is_empty());
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(count, 10, "results of rows of f64");
}

#[test]
fn results_of_some_iterations_are_equal() {
    let some = |model: &Model, iterations| {
        let output = match model.library() {
            // Its random forests have means for values only.
            Library::Lightgbm => Output::Value,
            _ => Output::Margin,
        };
        Options { output, iterations: Some(iterations) }
    };
    compare("first", VALUE, |model| some(model, 0..1));
    compare("others", VALUE, |model| some(model, 1..model.iterations()));
}

#[test]
fn leaves_with_linear_models_have_no_contributions() {
    let refused = |name| {
        let model = model(&fixture(name));
        model.explainer(None, Columns::All).map(|_| ()).expect_err(name)
    };
    assert_eq!(refused("lightgbm-4.7.0/linear.model"), Unexplained::Linear);
    assert_ne!(refused("lightgbm-4.7.0/linear-single-leaf.model"), Unexplained::Linear);
    assert!(refused("lightgbm-4.7.0/linear.model").to_string().contains("linear_tree"));
}

#[test]
fn models_that_are_not_supported_are_refused_with_the_remedy() {
    let cases = [
        ("catboost-1.2.10/categories.json", "categorical features (1, 3)"),
        ("catboost-1.2.10/binary.cbm", "format=\"json\""),
        ("catboost-1.2.10/no-rows-of-a-class.json", "MultiClass with 4 classes"),
    ];
    for (name, remedy) in cases {
        let error = read(&fixture(name)).expect_err(name);
        assert!(matches!(error, Error::Unsupported(_)), "{name}: {error}");
        assert!(error.to_string().contains(remedy), "{name}: {error}");
    }
}

#[test]
fn what_a_model_says_about_itself_is_read() {
    let lightgbm = model(&fixture("lightgbm-4.7.0/regression.model"));
    assert_eq!(lightgbm.feature_names(), ["age", "price", "x(0)", "d-1", "e_e"]);
    assert_eq!((lightgbm.library(), lightgbm.features()), (Library::Lightgbm, 5));
    assert_eq!((lightgbm.groups(), lightgbm.iterations()), (1, 3));
    assert_eq!(lightgbm.best_iteration(), None);
    let classes = model(&fixture("lightgbm-4.7.0/multiclass.model"));
    let widths = [Output::Value, Output::Margin, Output::Leaf].map(|output| classes.width(output));
    assert_eq!((widths, classes.iterations()), ([3, 3, 9], 3));
    assert!(classes.feature_names().is_empty(), "names that LightGBM gave are none");
    let catboost = model(&fixture("catboost-1.2.10/rmse.json"));
    assert_eq!(catboost.feature_names(), ["age", "price", "x 0", "länge"]);
    assert_eq!((catboost.library(), catboost.features()), (Library::Catboost, 4));
    assert_eq!((catboost.groups(), catboost.iterations()), (1, 3));
    let classes = model(&fixture("catboost-1.2.10/multiclass.json"));
    let widths = [Output::Value, Output::Margin, Output::Leaf].map(|output| classes.width(output));
    assert_eq!((widths, classes.iterations()), ([3, 3, 3], 3));
    assert!(classes.feature_names().is_empty());
    let nested = model(&fixture("catboost-1.2.10/lossguide-classes.json"));
    let widths = [Output::Value, Output::Margin, Output::Leaf].map(|output| nested.width(output));
    assert_eq!((widths, nested.iterations()), ([3, 3, 3], 3));
    assert_eq!((nested.library(), nested.features()), (Library::Catboost, 4));
}
