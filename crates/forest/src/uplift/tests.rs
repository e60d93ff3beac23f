mod contributions;

use std::{fs, slice};

use outrigger_core::{Content, DType, Reason};
use outrigger_run::{
    Framework, PackagedModel,
    local::{Model as _, floats},
    memory_to_read,
};
use outrigger_trees::Limits;
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::{
    CATBOOST, LIGHTGBM, XGBOOST,
    libraries::{
        ARMS,
        tests::{CATBOOST_FILE, LIGHTGBM_FILE},
    },
    load,
    model::tests::{call, file, package, read, squares, stump},
    testing::assert_divisible,
};

/// Columns of the models of these tests: two of the user, then two of the treatment.
const COLUMNS: usize = 4;
const NAMES: [&str; COLUMNS] = ["age", "visits", "discount", "channel"];

/// A split: the column, the threshold, and the values of its leaves.
type Stump = (usize, f32, f32, f32);

/// A model of [`COLUMNS`] columns, in XGBoost's JSON.
fn model(names: &[&str], stumps: &[Stump]) -> Value {
    let mut model = file("binary:logistic", names, json!({}));
    let learner = &mut model["learner"];
    learner["learner_model_param"]["num_feature"] = COLUMNS.to_string().into();
    let count = stumps.len();
    let stumps = stumps
        .iter()
        .map(|(column, threshold, left, right)| stump(*column, *threshold, *left, *right));
    let booster = &mut learner["gradient_booster"]["model"];
    booster["gbtree_model_param"]["num_trees"] = count.to_string().into();
    booster["trees"] = stumps.collect();
    booster["tree_info"] = vec![0; count].into();
    booster["iteration_indptr"] = (0..=count).collect();
    model
}

/// The files of a model, and its control.
struct Package {
    files: TempDir,
    uplift: Uplift,
}

impl Package {
    fn model(&self) -> PackagedModel {
        let uplift = Some(Arc::new(self.uplift.clone()));
        PackagedModel { directory: self.files.path().to_owned(), uplift, is_double: false }
    }
}

fn of_arms(names: &[&str]) -> Uplift {
    Uplift::Arms(names.iter().map(|name| (*name).to_owned()).collect())
}

fn control(values: &[(&str, f32)]) -> Uplift {
    let value = |(name, value): &(&str, f32)| {
        ((*name).to_owned(), Some(f64::from(*value)).filter(|value| !value.is_nan()))
    };
    Uplift::Control(values.iter().map(value).collect())
}

/// A package of a T-learner with these models by their arms' names; the first is the control's.
fn arms(models: &[(&str, Value)], numbered: &[&str]) -> Package {
    let files = package("model.json", &models[0].1, None);
    let directory = files.path().join(ARMS);
    fs::create_dir(&directory).expect("a directory");
    for (name, model) in &models[1..] {
        fs::write(directory.join(format!("{name}.json")), model.to_string()).expect("a file");
    }
    Package { files, uplift: of_arms(numbered) }
}

/// A call with these rows, for outputs in the order of [`OUTPUTS`].
fn rows(values: &[f32]) -> Call {
    let outputs = OUTPUTS.map(|(name, ..)| name);
    let count = values.len() / COLUMNS;
    call(&[count as i64, COLUMNS as i64], values, &outputs)
}

/// The call with these numbers of arms.
fn with_arms(call: Call, numbers: &[i64]) -> Call {
    let bytes: Vec<_> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let (shape, content) = (vec![numbers.len() as i64, 1], Content::Bytes(bytes.into()));
    let arm = Tensor { name: "arm".into(), dtype: DType::Int64, shape, content };
    Call { inputs: [call.inputs, vec![arm]].concat(), ..call }
}

/// The bits of all outputs.
fn bits(outputs: &[Tensor]) -> Vec<Vec<u32>> {
    let bits = |output| floats(output).expect("floats").iter().map(|it| it.to_bits()).collect();
    outputs.iter().map(bits).collect()
}

/// The bits of all outputs, from a comparison of each row by itself: `row` and `control` are the
/// models of rows and of their controls.
fn expected(pairs: &[(&Model, Vec<f32>, &Model, Vec<f32>)]) -> Vec<Vec<u32>> {
    let of = |(_, output, part): &(&str, Output, Part)| {
        let score = |(model, row, by, control): &(&Model, Vec<f32>, &Model, Vec<f32>)| {
            let [row, control] = [model.scores(*output, row)[0], by.scores(*output, control)[0]];
            match part {
                Part::Row => row,
                Part::Control => control,
                Part::Difference => row - control,
            }
        };
        pairs.iter().map(|pair| score(pair).to_bits()).collect()
    };
    OUTPUTS.iter().map(of).collect()
}

fn value() -> impl Strategy<Value = f32> {
    prop_oneof![8 => (-8..8_i8).prop_map(|it| f32::from(it) / 4.0), 1 => Just(f32::NAN)]
}

fn stumps() -> impl Strategy<Value = Vec<Stump>> {
    let number = || (-80..80_i8).prop_map(|it| f32::from(it) / 7.0);
    prop::collection::vec((0..COLUMNS, number(), number(), number()), 1..8)
}

/// Rows of some users, each of them with several treatments.
fn joined() -> impl Strategy<Value = Vec<f32>> {
    let treatments = prop::collection::vec([value(), value()], 0..7);
    let users = prop::collection::vec(([value(), value()], treatments), 0..6);
    users.prop_map(|users| {
        let rows = users.iter().flat_map(|(user, treatments)| {
            treatments.iter().flat_map(move |treatment| [*user, *treatment].concat())
        });
        rows.collect()
    })
}

proptest! {
    #[test]
    fn an_s_learner_compares_each_row_with_its_control(
        stumps in stumps(),
        rows_of_users in joined(),
        changed in prop::collection::btree_map(0..COLUMNS, value(), 1..COLUMNS),
    ) {
        let named: Vec<_> =
            changed.iter().map(|(column, value)| (NAMES[*column], *value)).collect();
        let files = package("model.json", &model(&NAMES, &stumps), None);
        let package = Package { files, uplift: control(&named) };
        let learner = load(&package.model()).expect("a model");
        let alone = read(package.files.path()).expect("a model");
        let pairs: Vec<_> = rows_of_users
            .chunks_exact(COLUMNS)
            .map(|row| {
                let mut other = row.to_vec();
                changed.iter().for_each(|(column, value)| other[*column] = *value);
                (&alone, row.to_vec(), &alone, other)
            })
            .collect();
        let call = rows(&rows_of_users);
        assert_divisible(&*learner, &call);
        let outputs = learner.run(call).expect("scores");
        prop_assert_eq!(bits(&outputs), expected(&pairs));
    }

    #[test]
    fn a_t_learner_compares_the_model_of_the_arm_with_that_of_the_control(
        of_arms in [stumps(), stumps(), stumps()],
        rows_of_users in joined(),
        draw in prop::collection::vec(0..3_usize, 36),
    ) {
        let [control, mens, womens] = of_arms.map(|stumps| model(&NAMES, &stumps));
        let models = [("control", control), ("mens", mens), ("womens", womens)];
        let learner = arms(&models, &["womens", "control", "mens"]);
        let learner = load(&learner.model()).expect("a model");
        // The models by the numbers of their arms.
        let alone = [2, 0, 1].map(|at: usize| {
            read(package("model.json", &models[at].1, None).path()).expect("a model")
        });
        let pairs: Vec<_> = rows_of_users
            .chunks_exact(COLUMNS)
            .zip(&draw)
            .map(|(row, arm)| (&alone[*arm], row.to_vec(), &alone[1], row.to_vec()))
            .collect();
        let numbers: Vec<_> = draw.iter().take(pairs.len()).map(|arm| *arm as i64).collect();
        let call = with_arms(rows(&rows_of_users), &numbers);
        assert_divisible(&*learner, &call);
        let outputs = learner.run(call).expect("scores");
        prop_assert_eq!(bits(&outputs), expected(&pairs));
    }
}

fn s_learner(uplift: Uplift, options: Option<&str>) -> Package {
    let files = package("model.json", &model(&NAMES, &[(2, 0.5, 1.0, 3.0)]), options);
    Package { files, uplift }
}

#[test]
fn outputs_have_the_names_and_the_order_of_the_call() {
    let package = s_learner(control(&[("discount", 0.0)]), None);
    let learner = load(&package.model()).expect("a model");
    let row = |outputs: &[&str]| call(&[1, 4], &[7.0, 7.0, 0.75, 7.0], outputs);
    let outputs = learner.run(row(&["margin_uplift", "margin"])).expect("scores");
    let named: Vec<_> = outputs
        .iter()
        .map(|output| (&*output.name, floats(output).expect("floats")[0], &output.shape[..]))
        .collect();
    assert_eq!(named, [("margin_uplift", 2.0, &[1][..]), ("margin", 3.0, &[1][..])]);
    assert_eq!(learner.run(row(&[])).expect("scores").len(), OUTPUTS.len());
    let error = learner.run(row(&["leaves"])).expect_err("no such output").to_string();
    assert!(error.contains("no output leaves"), "{error}");
}

#[test]
fn columns_without_names_are_called_by_their_numbers() {
    let files = package("model.json", &model(&[], &[(2, 0.5, 1.0, 3.0)]), None);
    let package = Package { files, uplift: control(&[("f2", 0.0)]) };
    let learner = load(&package.model()).expect("a model");
    let outputs = learner.run(rows(&[0.0, 0.0, 1.0, 0.0])).expect("scores");
    assert_eq!(floats(&outputs[5]).expect("floats")[..], [2.0]);
}

#[test]
fn the_number_for_missing_values_is_one_in_the_control_too() {
    // A missing value goes left.
    let package = s_learner(control(&[("discount", 9.0)]), Some(r#"{"missing": 9}"#));
    let learner = load(&package.model()).expect("a model");
    let outputs = learner.run(rows(&[0.0, 0.0, 1.0, 0.0])).expect("scores");
    assert_eq!(floats(&outputs[5]).expect("floats")[..], [2.0]);
}

#[test]
fn rows_of_one_user_have_one_control() {
    let rows = [
        [1.0, 5.0, f32::NAN],
        [1.0, 6.0, f32::NAN],
        [1.0, 6.0, f32::NAN],
        [2.0, 6.0, 0.0],
        [1.0, 6.0, f32::NAN],
    ];
    let distinct = distinct::Distinct::new(rows.as_flattened(), 3, &[0..1, 2..3]);
    assert_eq!((&distinct.kept[..], &distinct.of_rows[..]), (&[0, 3, 4][..], &[0, 0, 0, 1, 2][..]));
    assert_eq!(distinct.spread(&[7.0, 8.0, 9.0], 1), [7.0, 7.0, 7.0, 8.0, 9.0]);
    let distinct = distinct::Distinct::new(rows.as_flattened(), 3, slice::from_ref(&(0..3)));
    assert_eq!(distinct.kept, [0, 1, 3, 4]);
}

#[test]
fn an_interface_has_the_inputs_and_outputs_of_the_loaded_model() {
    let two = [("control", squares()), ("mens", squares())];
    let packages = [s_learner(control(&[("age", 1.0)]), None), arms(&two, &["control", "mens"])];
    for (package, inputs) in packages.iter().zip([&["features"][..], &["arm", "features"]]) {
        let model = package.model();
        let interface = (XGBOOST.interface)(&model, SIGNATURE).expect("an interface");
        let loaded = load(&model).expect("a model");
        assert_eq!(loaded.interface(SIGNATURE).as_ref(), Some(&interface));
        assert!(loaded.interface("other").is_none());
        assert_eq!(interface.inputs.iter().map(|it| &*it.name).collect::<Vec<_>>(), inputs);
        assert_eq!(interface.outputs.len(), OUTPUTS.len());
    }
}

/// The refusal of a package.
fn refusal(package: &Package) -> String {
    let failure = load(&package.model()).err().expect("refused");
    assert_eq!(failure.reason, Reason::ImageInvalid);
    failure.message
}

#[test]
fn settings_that_do_not_fit_the_model_are_refused() {
    for (uplift, problem) in [
        (control(&[]), "uplift.control: no feature has a value"),
        (control(&[("colour", 1.0)]), "the model has no \"colour\""),
        (control(&[("f2", 1.0)]), "the model has no \"f2\""),
        (of_arms(&[]), "metadata.json: uplift.arms: no arm has a model"),
        (of_arms(&["control"]), "no arm has a model"),
        (of_arms(&["a", "a"]), "\"a\" is there twice"),
        (of_arms(&["../a"]), "cannot be the name of a file"),
        (of_arms(&[""]), "cannot be the name of a file"),
        (of_arms(&["a"]), "needs a.ubj or a.json or a.bin in xgboost/arms, has none"),
    ] {
        let message = refusal(&s_learner(uplift, None));
        assert!(message.contains(problem), "{message}");
    }
}

#[test]
fn an_arm_has_one_valid_model_with_the_features_of_the_controls() {
    let control = ("control", squares());
    let refused = |model: Value| refusal(&arms(&[control.clone(), ("mens", model)], &["mens"]));
    let message = refused(model(&[], &[(0, 0.0, 1.0, 2.0)]));
    assert!(message.starts_with("arms/mens.json: its features or outputs are not"), "{message}");
    let message = refused(json!({"learner": 1}));
    assert!(message.starts_with("arms/mens.json: the model file is invalid"), "{message}");
    let two = arms(&[control.clone(), ("mens", squares())], &["mens"]);
    fs::write(two.files.path().join(ARMS).join("mens.ubj"), "").expect("a file");
    assert!(refusal(&two).contains("has several"));
}

/// A package of two arms: these files, of which the first is the control's, with their contents.
fn arms_of(files: [(&str, &str); 2]) -> Package {
    let directory = tempfile::tempdir().expect("a directory");
    fs::create_dir(directory.path().join(ARMS)).expect("a directory");
    for (name, content) in files {
        fs::write(directory.path().join(name), content).expect("a file");
    }
    Package { files: directory, uplift: of_arms(&["control", "mens"]) }
}

#[test]
fn arms_may_be_models_of_lightgbm_or_catboost() {
    // The other leaf of the arm's tree has 3 more.
    let of_lightgbm = LIGHTGBM_FILE.replace("leaf_value=-1 0", "leaf_value=-1 3");
    let of_catboost = CATBOOST_FILE.replace("[1, 2, 3, 3]", "[1, 2, 6, 3]");
    let lightgbm = arms_of([("model.txt", LIGHTGBM_FILE), ("arms/mens.txt", &of_lightgbm)]);
    let catboost = arms_of([("model.json", CATBOOST_FILE), ("arms/mens.json", &of_catboost)]);
    for (package, framework, width) in [(lightgbm, LIGHTGBM, 1), (catboost, CATBOOST, 2)] {
        let model = package.model();
        let learner = load(&model).expect("a model");
        let interface = (framework.interface)(&model, SIGNATURE).expect("an interface");
        assert_eq!(learner.interface(SIGNATURE), Some(interface));
        // Two rows for each side of the split, for the control and for the arm.
        let values = [0.0, 0.0, 0.0, 0.0, 0.0, 0.75, 0.0, 0.75];
        let rows = call(&[4, 2], &values, &["margin_uplift"]);
        let outputs = learner.run(with_arms(rows, &[0, 1, 0, 1])).expect("scores");
        let found = floats(&outputs[0]).expect("floats");
        let of_first: Vec<_> = found.iter().step_by(width).copied().collect();
        assert_eq!((found.len(), of_first), (4 * width, vec![0.0, 0.0, 0.0, 3.0]), "{framework:?}");
        let alone = load(&PackagedModel::from(package.files.path())).expect("a model").memory();
        assert!(learner.memory() > alone);
    }
}

#[test]
fn an_arm_is_of_the_library_of_the_control() {
    let squares = squares().to_string();
    for (control, arm, problem) in [
        (
            ("model.txt", LIGHTGBM_FILE),
            ("arms/mens.txt", CATBOOST_FILE),
            "its framework is catboost",
        ),
        (("model.json", CATBOOST_FILE), ("arms/mens.json", &squares), "its framework is xgboost"),
        (("model.json", CATBOOST_FILE), ("arms/mens.cbm", "CBM1"), "write it as JSON"),
        (
            ("model.txt", LIGHTGBM_FILE),
            ("arms/mens.json", LIGHTGBM_FILE),
            "mens.txt in lightgbm/arms",
        ),
    ] {
        let message = refusal(&arms_of([control, arm]));
        assert!(message.contains(problem), "{message}");
    }
}

#[test]
fn calls_that_do_not_fit_the_model_are_errors() {
    let package = arms(&[("control", squares()), ("mens", squares())], &["control", "mens"]);
    let learner = load(&package.model()).expect("a model");
    let rows = || call(&[2, 2], &[1.0; 4], &["value_uplift"]);
    let other = |dtype| {
        let mut call = with_arms(rows(), &[0, 1]);
        call.inputs[1].dtype = dtype;
        call
    };
    for (call, problem) in [
        (rows(), "no input arm"),
        (with_arms(rows(), &[0]), "one number for each of 2 rows"),
        (with_arms(rows(), &[0, 2]), "arm must be 0 to 1, is 2"),
        (with_arms(rows(), &[-1, 0]), "arm must be 0 to 1, is -1"),
        (other(DType::Int32), "arm must be int64"),
    ] {
        let error = learner.run(call).expect_err(problem);
        assert_eq!(error.reason(), Reason::RequestMalformed);
        assert!(error.to_string().contains(problem), "{error}");
    }
    let same = learner.run(with_arms(rows(), &[0, 0])).expect("scores");
    assert_eq!(floats(&same[0]).expect("floats")[..], [0.0; 2], "the control has no effect");
}

#[test]
fn the_models_of_arms_take_memory() {
    let package = arms(&[("control", squares()), ("mens", squares())], &["control", "mens"]);
    let size = squares().to_string().len() as u64;
    let needed = |frameworks: &[Framework]| memory_to_read(frameworks, package.files.path());
    assert_eq!(needed(&[XGBOOST]), 4 * size + Limits::OVERHEAD);
    assert_eq!(needed(&[Framework { others: None, ..XGBOOST }]), 2 * size + Limits::OVERHEAD);
    let alone = read(package.files.path()).expect("a model").memory();
    assert_eq!(load(&package.model()).expect("a model").memory(), 2 * alone);
}
