//! A malformed file is an error with the number of its entry, or another model; never a panic.

mod support;

use std::{fs, path::PathBuf};

use outrigger_fm::{Error, Kind, Limits, Output, Precision, Reading};
use support::{Content, Entry, Tree, score, trees};

const TREE: Tree = [(0, 0.5, true); 3];

const SERVING: &str = "bias 0.5\n5 1 2 3\n6 4 5 6\n";
const ALPHAFM: &str = "bias 0.5 0 0\n5 1 2 3 0 0 0 0 0 0\n";
const SOFTMAX: &str = "bias 1 0 0 2 0 0\n5 1 2 0 0 0 0 3 4 0 0 0 0\n";

fn content(fm: impl Into<Vec<u8>>, leaf_mapping: &str) -> Content {
    Content { trees: trees(&[TREE; 2], 3), fm: fm.into(), leaf_mapping: leaf_mapping.into() }
}

fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    fs::read(path).expect("a fixture")
}

/// Reads a model in both modes, and scores rows with it.
fn use_it(content: &Content, kind: Kind) -> bool {
    let row: (Vec<Entry>, Vec<Entry>) = (vec![(0, 1.0), (5, f32::NAN)], vec![(6, f32::INFINITY)]);
    let read = [false, true].map(|lenient| {
        let Ok(model) = content.read(&Reading { lenient, ..Reading::new(kind) }) else {
            return false;
        };
        for output in [Output::Value, Output::Margin] {
            score(&model, std::slice::from_ref(&row), output, Precision::Single);
            score(&model, std::slice::from_ref(&row), output, Precision::Double);
        }
        true
    });
    read[0]
}

fn error(content: &Content, kind: Kind) -> String {
    content.read(&Reading::new(kind)).expect_err("a malformed file").to_string()
}

#[test]
fn errors_have_the_number_of_the_line() {
    let cases = [
        (Kind::Binary, "", "is invalid: it is empty"),
        (Kind::Binary, "bias 0.5\n", "is invalid: it has no features"),
        (Kind::Binary, "\n5 1 2\n", "line 1: it begins with \"\" instead of \"bias\""),
        (Kind::Binary, "bias\n5 1 2\n", "line 1: it has 1 fields instead of 2 or 4"),
        (Kind::Binary, "bias 1 2\n5 1 2\n", "line 1: it has 3 fields instead of 2 or 4"),
        (Kind::Binary, "bias x\n5 1 2\n", "line 1: \"x\" is no finite number"),
        (Kind::Binary, "7 0.5\n5 1 2\n", "line 1: it begins with \"7\""),
        (Kind::Binary, "bias 0.5\n5 1 2\n\n6 1 2\n", "line 3: the line is empty"),
        (Kind::Binary, "bias 0.5\n5 1 2\n6\n", "line 3: it has 1 fields"),
        (Kind::Binary, "bias 0.5\n5 1 2\n6 1 2 3\n", "line 3: it has 2 factors"),
        (Kind::Binary, "bias 0.5\n5 1 2\n-6 1 2\n", "line 3: \"-6\" is no id"),
        (Kind::Binary, "bias 0.5\n5 1 2\n5 1 2\n", "line 3: the feature 5 is there already"),
        (Kind::Binary, "bias 0.5\n5 1 2\n5 0 0\n", "line 3: the feature 5 is there already"),
        (Kind::Binary, "bias 0.5\n5 0 0\n5 1 2\n", "line 3: the feature 5 is there already"),
        (Kind::Binary, "bias 0.5\n5 0 0\n5 0 0\n", "line 3: the feature 5 is there already"),
        (Kind::Binary, "bias 0.5\n5 1 inf\n", "line 2: \"inf\" is no finite number"),
        (Kind::Binary, "bias 0.5\n5 1 nan\n", "line 2: \"nan\" is no finite number"),
        (Kind::Binary, "bias 0.5\n5 1e99 1\n", "line 2: \"1e99\" is no finite number"),
        (Kind::Binary, "bias 0.5\n5 1 2;3\n", "line 2: \"2;3\" is no finite number"),
        (Kind::Binary, "bias 0.5 0 0\n5 1 2 0 0\n", "line 2: it has 5 fields"),
        (Kind::Softmax, "bias\n5 1 2\n", "line 1: it has 1 fields instead of 1 and three"),
        (Kind::Softmax, "bias 1 0 0 1 0\n", "line 1: it has 6 fields"),
        (Kind::Softmax, "bias 1 0 0 2 0 0\n5 1 2 3\n", "line 2: it has 4 fields"),
        (Kind::Softmax, "bias 1 0 0\n5 1 x 0 0 0 0\n", "line 2: \"x\" is no finite number"),
        (Kind::Softmax, "bias 1 0 0\n", "it has no features"),
    ];
    for (kind, fm, expected) in cases {
        let error = error(&content(fm, ""), kind);
        assert!(error.contains("FM file") && error.contains(expected), "{fm:?}: {error}");
    }
}

#[test]
fn errors_have_the_number_of_the_line_of_the_mapping() {
    let cases = [
        ("0 3:5\n\n0 4:5\n", "line 2: the line is empty"),
        ("0", "line 1: the line has no leaves"),
        ("x 3:5", "line 1: \"x\" is no tree"),
        ("-1 3:5", "line 1: \"-1\" is no tree"),
        ("0 3:5\n2 3:5", "line 2: there is no tree 2, but 2 trees"),
        ("0 3", "line 1: \"3\" is no leaf with a feature"),
        ("0 3:5:6", "line 1: \"3:5:6\" is no leaf"),
        ("0 3:x", "line 1: \"3:x\" is no leaf"),
        ("0 4294967296:5", "line 1: \"4294967296:5\" is no leaf"),
        (
            "0 3:5\n1 6:5 0:6",
            "line 2: tree 1 has no leaf 0: leaves have the numbers that pred_leaf",
        ),
        ("0 2:5", "line 1: tree 0 has no leaf 2"),
        ("0 7:5", "line 1: tree 0 has no leaf 7"),
        ("0 4294967295:5", "line 1: tree 0 has no leaf 4294967295"),
        ("0 3:5 4:5 3:6", "line 1: leaf 3 of tree 0 is there already"),
        ("0 3:5\n1 3:5\n0 3:5", "line 3: leaf 3 of tree 0 is there already"),
    ];
    for (mapping, expected) in cases {
        let error = error(&content(SERVING, mapping), Kind::Binary);
        assert!(error.contains("leaf mapping") && error.contains(expected), "{mapping}: {error}");
    }
}

/// The head of a binary file, and a record for the bias and for one feature, of f32.
fn binary(change: impl FnOnce(&mut [u64; 7])) -> Vec<u8> {
    let mut head = [1, 4, 1, 2, 2, 1, 24];
    change(&mut head);
    let mut file: Vec<_> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (name, weight) in [("bias", 0.5_f32), ("5", 1.0)] {
        file.extend((name.len() as u16).to_le_bytes());
        file.extend(name.bytes());
        file.extend([weight, 0.0, 0.0, 2.0, 0.0, 0.0].iter().flat_map(|x: &f32| x.to_le_bytes()));
    }
    file
}

#[test]
fn files_say_which_kind_they_are() {
    let kind = |fm: &[u8]| content(fm, "").read(&Reading::new(None)).map(|model| model.kind());
    for fm in [SERVING, ALPHAFM] {
        assert_eq!(kind(fm.as_bytes()).expect("a model"), Kind::Binary);
    }
    assert_eq!(kind(&binary(|_| {})).expect("a model"), Kind::Binary);
    assert_eq!(kind(SOFTMAX.as_bytes()).expect("a model"), Kind::Softmax);
    let error = kind(b"bias 1 2\n5 1 2\n").expect_err("no kind").to_string();
    assert!(error.contains("it has 3 fields instead of 2, or 1 and three"), "{error}");
}

#[test]
fn binary_files_are_checked() {
    assert!(use_it(&content(binary(|_| {}), "0 3:5"), Kind::Binary));
    let changes: [(usize, u64, &str); 9] = [
        (0, 257, "its version is 257 instead of 1"),
        (1, 16, "its numbers have 16 bytes"),
        (2, 2, "24 bytes of a record do not fit 2 factors"),
        (2, u64::MAX, "do not fit 18446744073709551615 factors"),
        (3, 0, "0 records do not fit its length"),
        (3, 1, "27 bytes follow its last record"),
        (3, u64::MAX, "records do not fit its length"),
        (5, 0, "it was not written to its end"),
        (6, u64::MAX, "18446744073709551615 bytes of a record do not fit"),
    ];
    for (at, value, expected) in changes {
        let error = error(&content(binary(|head| head[at] = value), ""), Kind::Binary);
        assert!(error.contains(expected), "{at}: {error}");
    }
    let mut file = binary(|_| {});
    let weight = file.len() - 24;
    file[weight..weight + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let nan = error(&content(file.clone(), ""), Kind::Binary);
    assert!(nan.contains("the FM file is invalid in record 2: NaN is no finite number"), "{nan}");
    file[weight - 1] = b'x';
    assert!(error(&content(file.clone(), ""), Kind::Binary).contains("record 2: NaN is no finite"));
    file[58] = b'B';
    assert!(error(&content(file.clone(), ""), Kind::Binary).contains("record 1: its name is"));
    assert!(error(&content(file, ""), Kind::Softmax).contains("has no binary form"));
    file = binary(|_| {});
    file.truncate(file.len() - 1);
    assert!(error(&content(file, ""), Kind::Binary).contains("it ends too early"));
}

/// Fixtures in each form.
fn models() -> Vec<(Content, Kind)> {
    let of = |fm: &str, kind| {
        let [trees, fm, leaf_mapping] = ["trees.json", fm, "leaf_mapping"].map(fixture);
        (Content { trees, fm, leaf_mapping }, kind)
    };
    let binary = ["serving.fm", "alphafm.fm", "double.bin"].map(|fm| of(fm, Kind::Binary));
    let softmax = of("softmax.fm", Kind::Softmax);
    let small = [(SERVING, Kind::Binary), (ALPHAFM, Kind::Binary), (SOFTMAX, Kind::Softmax)];
    let small = small.map(|(fm, kind)| (content(fm, "0 3:5 6:6\n1 4:5\n"), kind));
    binary.into_iter().chain([softmax]).chain(small).collect()
}

#[test]
fn files_that_end_early_or_have_other_bytes_do_no_harm() {
    for (content, kind) in models() {
        assert!(use_it(&content, kind));
        // Fuzzing (fuzz/fuzz_targets/fm.rs) tries more.
        let step = 1 + content.fm.len() / 300;
        for at in (0..content.fm.len()).step_by(step) {
            let mut changed = content.clone();
            changed.fm.truncate(at);
            use_it(&changed, kind);
            for byte in [content.fm[at] ^ 1, 0xFF, b'9', b' ', b'\n'] {
                changed.clone_from(&content);
                changed.fm[at] = byte;
                use_it(&changed, kind);
            }
        }
        for at in 0..content.leaf_mapping.len() {
            let mut changed = content.clone();
            changed.leaf_mapping[at] = b':';
            use_it(&changed, kind);
            changed.leaf_mapping.truncate(at);
            use_it(&changed, kind);
        }
    }
}

#[test]
fn the_trees_are_checked() {
    let mut broken = content(SERVING, "");
    broken.trees.truncate(40);
    assert!(matches!(broken.read(&Reading::new(Kind::Binary)), Err(Error::Trees(_))));
    let no_trees = Content { trees: trees(&[], 0), ..content(SERVING, "") };
    assert!(use_it(&no_trees, Kind::Binary));
}

#[test]
fn columns_that_no_split_uses_take_no_memory() {
    let limits = Limits { memory: 1 << 18, ..Limits::default() };
    let reading = Reading { limits, ..Reading::new(Kind::Binary) };
    let far = [(0, 0.5, true), (1 << 28, 0.5, true), (1 << 20, 0.5, true)];
    let wide = Content { trees: trees(&[far], 1 << 29), ..content(SERVING, "0 3:5 5:6") };
    let model = wide.read(&reading).expect("a small model");
    let rows = [vec![(0, 0.0)], vec![(0, 1.0), (1 << 20, 0.0)]].map(|row| (row, vec![]));
    let margins = score(&model, &rows, Output::Margin, Precision::Single);
    // The bias and the weight of the feature of the leaf.
    assert_eq!(margins, [1.5, 4.5]);
}

#[test]
fn leaves_of_any_number_take_memory_only_for_the_file() {
    let limits = Limits { memory: 1 << 18, ..Limits::default() };
    let reading = Reading { limits, lenient: true, ..Reading::new(Kind::Binary) };
    let mapped = content(SERVING, "0 0:5 4294967295:6\n1 4000000000:5 3:5");
    let model = mapped.read(&reading).expect("a small model");
    let skipped = model.skipped();
    assert_eq!(skipped.count, 3);
    let first = skipped.first.as_deref().unwrap_or_default();
    assert!(
        first.starts_with("the leaf mapping is invalid in line 1: tree 0 has no leaf 0"),
        "{first}"
    );
    // The bias, and the weight of the only leaf with a feature.
    let row = (vec![(0, 0.0)], vec![]);
    let margins = score(&model, &[row], Output::Margin, Precision::Single);
    assert_eq!(margins, [1.5]);
}

#[test]
fn a_long_line_is_within_the_limit() {
    let limits = Limits { memory: 1 << 20, ..Limits::default() };
    let reading = Reading { limits, ..Reading::new(Kind::Binary) };
    let long = content(format!("bias 0.5\n5 {}", "1 ".repeat(1 << 20)), "");
    assert!(matches!(long.read(&reading), Err(Error::Memory { .. })));
}
