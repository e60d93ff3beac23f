use super::*;

fn list(text: &str) -> Vec<ModelConfig> {
    match parse(text).expect("the text is valid").config {
        Some(model_server_config::Config::ModelConfigList(list)) => list.config,
        other => panic!("not a list: {other:?}"),
    }
}

fn problem(text: &str) -> (usize, String) {
    let problem = parse(text).expect_err("the text is not valid");
    (problem.line, problem.message)
}

#[test]
fn an_empty_text_sets_nothing_and_an_empty_list_sets_a_list() {
    assert_eq!(parse("").unwrap().config, None);
    assert_eq!(parse("# nothing\n").unwrap().config, None);
    assert_eq!(list("model_config_list {}"), []);
    assert_eq!(list("model_config_list: {\n}"), []);
}

#[test]
fn every_field_is_read() {
    let models = list(
        r#"
        model_config_list: {
          config: {  # the first
            name: "half" 'plus', base_path: "/models/\"half\"";
            model_platform: "tensorflow"
            model_version_policy { specific { versions: 3 versions: [4, -5] } }
            version_labels { key: "stable" value: 3 }
            version_labels < key: "next" value: 4 >
          }
          config { name: "all" model_type: TENSORFLOW model_version_policy { all {} } }
          config { name: "latest" model_type: 2 logging_config {} model_version_policy { latest { num_versions: 2 } } }
        }"#,
    );
    assert_eq!(models[0].name, "halfplus");
    assert_eq!(models[0].base_path, "/models/\"half\"");
    assert_eq!(models[0].model_platform, "tensorflow");
    assert_eq!(models[0].version_labels, [("stable".into(), 3), ("next".into(), 4)].into());
    let types = models.iter().map(|model| (model.model_type(), model.logging_config.is_some()));
    let expected =
        [(ModelType::Unspecified, false), (ModelType::Tensorflow, false), (ModelType::Other, true)];
    assert_eq!(types.collect::<Vec<_>>(), expected);
    let choices = models.iter().map(|model| model.model_version_policy.clone().unwrap());
    let choices: Vec<_> = choices.map(|policy| policy.policy_choice.unwrap()).collect();
    let specific = PolicyChoice::Specific(Specific { versions: vec![3, 4, -5] });
    let latest = PolicyChoice::Latest(Latest { num_versions: 2 });
    assert_eq!(choices, [specific, PolicyChoice::All(All {}), latest]);
}

#[test]
fn problems_name_their_line() {
    assert_eq!(problem("\nmodels {}"), (2, "ModelServerConfig has no field models".into()));
    assert_eq!(problem("model_config_list {\n"), (2, "a brace is not closed".into()));
    let number = "model_config_list { config {\n version_labels { value: 1.5 } } }";
    assert_eq!(problem(number), (2, "value needs a whole number in range".into()));
    let string = "model_config_list { config { name: half } }";
    assert_eq!(problem(string), (1, "name needs a string in quotes".into()));
    assert_eq!(problem("model_config_list 1").1, "a colon is missing before the value");
    assert_eq!(problem("model_config_list: \"").1, "a string is not closed on its line");
    assert!(problem(&"model_config_list {".repeat(40)).1.contains("too deep"));
    assert_eq!(problem("}").1, "a field's name is missing");
}
