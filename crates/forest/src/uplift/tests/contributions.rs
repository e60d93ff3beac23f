//! Contributions to the differences of margins.

use super::*;

#[test]
fn contributions_of_an_s_learner_add_up_to_the_difference_of_its_margins() {
    let package = s_learner(control(&[("discount", 0.0)]), None);
    let learner = load(&package.model()).expect("a model");
    assert_eq!(learner.contributions(SIGNATURE).expect("a size").of_row(), COLUMNS + 1);
    let values = [7.0, 7.0, 0.75, 7.0, 7.0, 7.0, 0.25, 7.0];
    let explained = learner.explain(rows(&values), &|| true).expect("contributions").values;
    assert_eq!(explained.shape, [2, 1, 5]);
    let expected = [[0.0, 0.0, 2.0, 0.0, 0.0], [0.0; 5]];
    assert_eq!(*floats(&explained).expect("floats"), expected.concat());
    let ended = learner.explain(rows(&[7.0; 4000 * COLUMNS]), &|| false);
    assert_eq!(ended.expect_err("it is to end").reason(), Reason::Deadline);
}

/// Models with these splits for the control and two arms, and a package with them. The arms are
/// numbered so that the control is number 1.
fn three_arms() -> ([Value; 3], Package) {
    let control = model(&NAMES, &[(2, 0.5, 1.0, 3.0), (0, 0.0, -1.0, 0.5)]);
    let mens = model(&NAMES, &[(2, 0.25, 2.0, -3.0), (1, 6.0, 0.25, 4.0)]);
    let womens = model(&NAMES, &[(3, 7.5, 5.0, 1.0)]);
    let models = [("control", control), ("mens", mens), ("womens", womens)];
    let package = arms(&models, &["womens", "control", "mens"]);
    (models.map(|(_, model)| model), package)
}

#[test]
fn contributions_of_a_t_learner_are_the_differences_of_its_models() {
    let (models, learner) = three_arms();
    let learner = load(&learner.model()).expect("a model");
    assert_eq!(learner.contributions(SIGNATURE).expect("a size").of_row(), COLUMNS + 2);
    let user = [7.0, 5.0, 0.75, 7.0];
    let of_rows = [user, user, user, [7.0, f32::NAN, 0.25, 8.0], user, [-1.0, 9.0, 0.25, 8.0]];
    let draw = [1, 2, 0, 2, 2, 1];
    // The models by the numbers of their arms.
    let alone = [2, 0, 1]
        .map(|at: usize| read(package("model.json", &models[at], None).path()).expect("a model"));
    let explained = |model: &Model, row: &[f32]| {
        let explained = model.explain(rows(row), &|| true).expect("contributions").values;
        floats(&explained).expect("floats").to_vec()
    };
    let call = with_arms(rows(of_rows.as_flattened()), &draw);
    let uplifts = learner.run(call.clone()).expect("scores");
    let uplifts = floats(&uplifts[5]).expect("floats").into_owned();
    let mut arm_first = call.clone();
    arm_first.inputs.reverse();
    // The column of the arm is at the place of its input.
    for (call, arm) in [(call, COLUMNS), (arm_first, 0)] {
        let found = learner.explain(call, &|| true).expect("contributions").values;
        assert_eq!(found.shape, [of_rows.len() as i64, 1, COLUMNS as i64 + 2]);
        let found = floats(&found).expect("floats").into_owned();
        for (at, found) in found.chunks_exact(COLUMNS + 2).enumerate() {
            let [of_arm, of_control] =
                [&alone[draw[at] as usize], &alone[1]].map(|model| explained(model, &of_rows[at]));
            let mut expected: Vec<_> =
                of_arm.iter().zip(&of_control).map(|(of_arm, control)| of_arm - control).collect();
            expected.insert(arm, 0.0);
            assert_eq!(found, expected, "row {at}");
            let sum: f32 = found.iter().sum();
            assert!((sum - uplifts[at]).abs() < 1e-5, "row {at}: {sum} {}", uplifts[at]);
            let is_control = draw[at] == 1;
            assert_eq!(found.iter().all(|value| *value == 0.0), is_control, "row {at}: {found:?}");
        }
    }
}

#[test]
fn explanations_of_a_t_learner_have_the_errors_of_its_scores_and_end_early() {
    let (_, package) = three_arms();
    let learner = load(&package.model()).expect("a model");
    for (numbers, problem) in
        [(&[3][..], "arm must be 0 to 2, is 3"), (&[1, 1], "one number for each of 1 rows")]
    {
        let call = with_arms(rows(&[7.0; COLUMNS]), numbers);
        let error = learner.explain(call, &|| true).expect_err(problem).to_string();
        assert!(error.contains(problem), "{error}");
    }
    // Rows that differ, so that each is explained.
    let values: Vec<_> = (0..4000 * COLUMNS).map(|at| at as f32).collect();
    let ended = learner.explain(with_arms(rows(&values), &[0; 4000]), &|| false);
    assert_eq!(ended.expect_err("it is to end").reason(), Reason::Deadline);
}

#[test]
fn a_t_learner_of_which_one_model_has_no_covers_has_no_contributions() {
    let mut without = model(&NAMES, &[(2, 0.5, 1.0, 3.0)]);
    let tree = &mut without["learner"]["gradient_booster"]["model"]["trees"][0];
    tree.as_object_mut().expect("a tree").remove("sum_hessian");
    let with = model(&NAMES, &[(2, 0.5, 1.0, 3.0)]);
    for models in [[&with, &without], [&without, &with]] {
        let [control, mens] = models.map(Clone::clone);
        let package = arms(&[("control", control), ("mens", mens)], &["control", "mens"]);
        let learner = load(&package.model()).expect("a model");
        let call = with_arms(rows(&[7.0; COLUMNS]), &[1]);
        let explained = learner.explain(call, &|| true).err();
        for refused in [learner.contributions(SIGNATURE).err(), explained] {
            let error = refused.expect("it has none");
            assert_eq!(error.reason(), Reason::ContributionsUnsupported);
        }
    }
}
