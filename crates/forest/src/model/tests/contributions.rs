//! Contributions to margins.

use super::*;

#[test]
fn contributions_add_up_to_the_margin() {
    let model = model(Some(r#"{"missing": -1}"#));
    let size = ContributionSize { margins: 1, columns: 2, by_id: false };
    assert_eq!(model.contributions(SIGNATURE).expect("a size"), size);
    let explained = model.explain(call(&[2, 2], &[0.0, 20.0, 5.0, -1.0], &[]), &|| true);
    let explained = explained.expect("contributions").values;
    assert_eq!((&*explained.name, &explained.shape[..]), ("contributions", &[2, 1, 3][..]));
    // The means of the trees are 1.75 and 0.4375; the base score is 0.5.
    let expected = [-0.75, 0.0625, 2.6875, 0.25, -0.1875, 2.6875];
    assert_eq!(*floats(&explained).expect("floats"), expected);
    assert_eq!(margins_of(&model, &[0.0, 20.0, 5.0, -1.0]), [2.0, 2.75]);
}

#[test]
fn contributions_are_those_of_the_iterations_that_count() {
    let model = model(Some(r#"{"iterations": [1, 2]}"#));
    let explained = model.explain(call(&[1, 2], &[0.0, 20.0], &[]), &|| true);
    let explained = explained.expect("contributions").values;
    assert_eq!(*floats(&explained).expect("floats"), [0.0, 0.0625, 0.9375]);
}

#[test]
fn a_model_without_covers_has_no_contributions() {
    let mut file = squares();
    let trees = &mut file["learner"]["gradient_booster"]["model"]["trees"];
    trees[1].as_object_mut().expect("a tree").remove("sum_hessian");
    let model = read(package("model.json", &file, None).path()).expect("a model");
    let sizes = [SIGNATURE, SPARSE].map(|signature| model.contributions(signature).err());
    let explained = [call(&[1, 2], &[1.0; 2], &[]), sparse_call(&[vec![]])]
        .map(|it| model.explain(it, &|| true).err());
    for refused in sizes.into_iter().chain(explained) {
        let error = refused.expect("it has none");
        assert_eq!(error.reason(), Reason::ContributionsUnsupported);
        assert!(error.to_string().contains("sum_hessian"), "{error}");
    }
}

#[test]
fn an_explanation_ends_early() {
    let rows = vec![0.0; 2 * 4000];
    let ended = model(None).explain(call(&[4000, 2], &rows, &[]), &|| false);
    assert_eq!(ended.expect_err("it is to end").reason(), Reason::Deadline);
}

/// The values and columns of an explanation of sparse rows.
fn explained(model: &Model, call: Call) -> (Vec<u64>, Vec<f32>) {
    let Explanation { values, columns } = model.explain(call, &|| true).expect("contributions");
    let columns = columns.expect("ids");
    let rows = values.shape[0];
    assert_eq!(values.shape, [rows, 1, columns.len() as i64 + 1]);
    (columns, floats(&values).expect("floats").into_owned())
}

/// A model of 1,000,000 columns, of which splits use two.
fn wide(options: Option<&str>) -> Model {
    let mut file = squares();
    let learner = &mut file["learner"];
    learner["learner_model_param"]["num_feature"] = "1000000".into();
    let trees = &mut learner["gradient_booster"]["model"]["trees"];
    *trees = json!([stump(17, 1.0, 2.0, 4.0), stump(999_999, 10.0, 0.25, 0.75)]);
    read(package("model.json", &file, options).path()).expect("a model")
}

#[test]
fn contributions_of_sparse_rows_are_those_of_the_columns_that_splits_use() {
    let rows = [
        vec![(999_999, 20.0), (17, 0.0), (3, 1.0)],
        vec![(17, 9.0), (17, f32::NAN), (17, 1.0), (1_000_000, 1.0)],
        vec![],
        vec![((1 << 32) + 17, 1.0)],
    ];
    let model = wide(None);
    let size = ContributionSize { margins: 1, columns: 2, by_id: true };
    assert_eq!(model.contributions(SPARSE).expect("a size"), size);
    let size = ContributionSize { margins: 1, columns: 1_000_000, by_id: false };
    assert_eq!(model.contributions(SIGNATURE).expect("a size"), size);
    for (options, known) in [(None, 0), (Some(r#"{"truncate_ids": true}"#), 1)] {
        let model = wide(options);
        let (columns, values) = explained(&model, sparse_call(&rows));
        assert_eq!(columns, [17, 999_999]);
        let margins = model.run(sparse_call(&rows)).expect("scores");
        let margins = floats(&margins[0]).expect("floats").into_owned();
        let sums: Vec<f32> = values.chunks_exact(3).map(|row| row.iter().sum()).collect();
        assert_eq!(sums, margins, "{options:?}");
        // The same splits in columns 0 and 1 of dense rows; what is missing is NaN.
        let mut file = squares();
        let trees = &mut file["learner"]["gradient_booster"]["model"]["trees"];
        *trees = json!([stump(0, 1.0, 2.0, 4.0), stump(1, 10.0, 0.25, 0.75)]);
        let narrow = read(package("model.json", &file, None).path()).expect("a model");
        let missing = f32::NAN;
        let last = [missing, 1.0][known];
        let dense = [0.0, 20.0, 1.0, missing, missing, missing, last, missing];
        let dense = narrow.explain(call(&[4, 2], &dense, &[]), &|| true).expect("contributions");
        assert_eq!(dense.columns, None);
        assert_eq!(values, *floats(&dense.values).expect("floats"));
    }
}

#[test]
fn contributions_of_a_sparse_row_that_counts_as_complete_add_up_to_its_margin() {
    // Two entries for one of two columns: the row lacks the other one, and goes right there.
    let rows = [vec![(1, 20.0), (1, -1.0)], vec![(1, -1.0)]];
    let (columns, values) = explained(&model(None), sparse_call(&rows));
    assert_eq!(columns, [0, 1]);
    let sums: Vec<f32> = values.chunks_exact(3).map(|row| row.iter().sum()).collect();
    assert_eq!(sums, [2.75, 1.75]);
}

#[test]
fn contributions_are_those_of_the_trees_that_the_call_limits() {
    let limited = |limit| {
        let mut call = sparse_call(&[vec![(0, 0.0), (1, 20.0)]]);
        call.inputs.push(int64("ntree_limit", &[limit]));
        explained(&model(None), call)
    };
    let (columns, all) = limited(0);
    let (same, first) = limited(1);
    assert_eq!((&columns[..], &same[..]), (&[0, 1][..], &[0, 1][..]));
    assert_eq!((all.iter().sum::<f32>(), first.iter().sum::<f32>()), (2.0, 1.5));
    assert_eq!(first[1], 0.0, "the second tree alone uses the column 1");
}

#[test]
fn an_explanation_of_sparse_rows_ends_early() {
    let ended = model(None).explain(sparse_call(&vec![vec![(0, 1.0)]; 4000]), &|| false);
    assert_eq!(ended.expect_err("it is to end").reason(), Reason::Deadline);
}
