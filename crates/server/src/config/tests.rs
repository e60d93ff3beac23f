use std::sync::Arc;

use outrigger_core::VersionPolicy;
use outrigger_testkit::linear::LINEAR;

use super::{environment::variable, *};

const MINIMAL: &str = "images: {repository: registry.example/team}";

fn load(
    file: Option<&str>,
    environment: impl IntoIterator<Item = (String, String)>,
    overrides: &[(String, String)],
) -> Result<Loaded, Invalid> {
    super::load(&Kinds::shipped(), file, environment, overrides)
}

fn from_file(text: &str) -> Result<Loaded, Invalid> {
    load(Some(text), [], &[])
}

fn keys(result: Result<Loaded, Invalid>) -> Vec<String> {
    result.unwrap_err().0.into_iter().map(|problem| problem.key).collect()
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn defaults_are_those_of_the_reference() {
    let config = from_file(MINIMAL).unwrap().config;
    assert_eq!(config.server.grpc.to_string(), "0.0.0.0:9000");
    assert_eq!(config.server.max_message, Size(64 << 20));
    assert_eq!(config.store.retain.0.as_secs(), 7 * 24 * 3600);
    assert_eq!(config.images.default_tag.as_str(), "latest");
    assert_eq!(config.engine.store_path, None);
}

#[test]
fn values_that_are_nested_too_deeply_are_refused() {
    let nested = |open: &str| open.repeat(100_000);
    for file in
        [nested("["), format!("server: {}", nested("{a: ")), format!("models:\n{}", nested("- "))]
    {
        let problem = from_file(&file).unwrap_err().to_string();
        assert!(problem.contains("is not valid YAML"), "{}", &problem[..problem.len().min(200)]);
    }
    let flag = ("models".to_owned(), nested("["));
    assert_eq!(keys(load(Some(MINIMAL), [], &[flag])), ["models"]);
}

#[test]
fn flags_win_over_the_environment_over_the_file_over_defaults() {
    let file = "server: {grpc: '127.0.0.1:1', http: '127.0.0.1:2', health: '127.0.0.1:3'}\n\
                images: {repository: registry.example/team}";
    let environment = variables(&[
        ("OUTRIGGER_SERVER_HTTP", "127.0.0.1:12"),
        ("OUTRIGGER_SERVER_HEALTH", "127.0.0.1:13"),
        ("OUTRIGGER_STORE_MAX_SIZE", "5GiB"),
        ("PATH", "/bin"),
    ]);
    let flags = variables(&[("server.health", "127.0.0.1:23")]);
    let loaded = load(Some(file), environment, &flags).unwrap();
    let server = &loaded.config.server;
    let ports = [server.grpc, server.http, server.health, server.admin].map(|a| a.port());
    assert_eq!(ports, [1, 12, 23, 9901]);
    assert_eq!(loaded.config.store.max_size, Size(5 << 30));
    assert_eq!(loaded.origins["server.health"], Origin::Flag);
    assert_eq!(loaded.origins["server.grpc"], Origin::File);
    assert!(!loaded.origins.contains_key("server.admin"));
}

#[test]
fn all_problems_are_reported_at_once_with_their_keys() {
    let file = "
server: {grpc: nowhere, max_treatments: many, prot: 1, shutdown_delay: 2h}
engine: {endpoint: 'unix:relative'}
store: {max_size: 5 parsecs, retain: 1m}
images:
  repository: 'registry.example/team:v1'
  poll_interval: 10ms
  identity: aws
  identity_hosts: ['*.example', '*', 'a/b']
  plain_http: ['localhost:5000', 'http://localhost:5000', '[::1]:5000', 'localhost/team']
speed: {limit: 1}
models:
  - {name: Churn}
";
    let environment = variables(&[("OUTRIGGER_LOG_FORMAT", "xml")]);
    let overrides = variables(&[("server.gprc", "127.0.0.1:1")]);
    let mut found = keys(load(Some(file), environment, &overrides));
    found.sort();
    assert_eq!(
        found,
        [
            "engine.endpoint",
            "images.identity",
            "images.identity_hosts[1]",
            "images.identity_hosts[2]",
            "images.plain_http[1]",
            "images.plain_http[3]",
            "images.poll_interval",
            "images.repository",
            "log.format",
            "models[0].name",
            "server.gprc",
            "server.grpc",
            "server.max_treatments",
            "server.prot",
            "server.shutdown_delay",
            "speed.limit",
            "store.max_size",
            "store.retain",
        ]
    );
}

#[test]
fn an_unknown_section_is_refused_even_if_it_is_empty() {
    for section in ["images2:", "images2: {}", "images2: []", "images2: {}\nserver:"] {
        assert_eq!(keys(from_file(&format!("{MINIMAL}\n{section}"))), ["images2"], "{section}");
    }
    from_file(&format!("{MINIMAL}\nserver:\nlog: {{}}\nengines:\nmodels:")).unwrap();
}

#[test]
fn a_problem_says_where_its_value_came_from() {
    let environment = variables(&[("OUTRIGGER_SERVER_GRPC", "nowhere")]);
    let text = load(Some(MINIMAL), environment, &[]).unwrap_err().to_string();
    assert!(text.starts_with("server.grpc: "), "{text}");
    assert!(text.ends_with("(environment OUTRIGGER_SERVER_GRPC)"), "{text}");
}

#[test]
fn keys_of_a_model_are_checked_by_position() {
    let base = "images: {repository: r.example/t, allowed: [r.example/t]}\nmodels:\n";
    for (models, key) in [
        ("- {name: a}\n- {name: b, imag: x}", "models[1].imag"),
        ("- {name: a}\n- {name: a}", "models[1].name"),
        ("- {name: a, image: r.example/other/a}", "models[0].image"),
        ("- {name: a, image: 'r.example/t/a:latest'}", "models[0].image"),
        ("- {name: a, digest: latest}", "models[0].digest"),
        ("- {name: a, rollover: swap}", "models[0].rollover"),
        ("- {image: r.example/t/a}", "models[0]"),
        (
            "- {name: a}\nimages: {repository: r.example/u, allowed: [r.example/t]}",
            "models[0].name",
        ),
    ] {
        let base = if models.contains("images:") { "models:\n" } else { base };
        assert_eq!(keys(from_file(&format!("{base}{models}"))), [key], "{models}");
    }
    assert_eq!(keys(from_file("models: [{name: a}]")), ["models[0].image"]);
}

#[test]
fn a_directory_of_versions_has_settings_of_its_own() {
    let load = |model: &str| from_file(&format!("{MINIMAL}\nmodels: [{{name: a, {model}}}]"));
    for (versions, policy) in [
        ("", None),
        ("versions: all", Some(VersionPolicy::All)),
        ("versions: {latest: 2}", Some(VersionPolicy::Latest(2))),
        ("versions: {specific: [8, 7]}", Some(VersionPolicy::Specific([7, 8].into()))),
        ("labels: {stable: 7, canary: 8}", None),
        ("rollover: replace, versions: {specific: [7]}", Some(VersionPolicy::Specific([7].into()))),
    ] {
        let loaded = load(&format!("directory: /models/a, {versions}")).expect("it is valid");
        assert_eq!(loaded.config.models[0].versions, policy, "{versions}");
    }
    for (model, key) in [
        ("directory: models/a", "models[0].directory"),
        ("directory: /var/lib/outrigger/a", "models[0].directory"),
        ("directory: /var", "models[0].directory"),
        ("directory: /a, image: r.example/t/a", "models[0].directory"),
        ("directory: /a, versions: latest", "models[0].versions.latest"),
        ("directory: /a, versions: {latest: 0}", "models[0].versions"),
        ("directory: /a, versions: {latest: 101}", "models[0].versions"),
        ("directory: /a, versions: {specific: []}", "models[0].versions"),
        ("directory: /a, versions: {specific: [-1]}", "models[0].versions"),
        ("directory: /a, versions: {latest: 2}, rollover: replace", "models[0].versions"),
        ("directory: /a, labels: {latest: 7}", "models[0].labels.latest"),
        ("directory: /a, labels: {'8': 7}", "models[0].labels.8"),
        ("image: r.example/t/a, versions: all", "models[0].versions"),
        ("image: r.example/t/a, labels: {stable: 7}", "models[0].labels"),
    ] {
        let found = keys(load(model));
        assert!(found.len() == 1 && found[0].starts_with(key), "{model}: {found:?}");
    }
    let often = "images: {directory_poll_interval: 10ms}\nmodels: [{name: a, directory: /a}]";
    assert_eq!(keys(from_file(often)), ["images.directory_poll_interval"]);
}

#[test]
fn rules_for_signatures_are_checked_by_position() {
    let file = "images: {repository: r.example/team, signatures: [\
                {prefix: r.example/team, keys: [a.pub]}, {prefix: team}, {prefix: r.example/team/}]}";
    assert_eq!(
        keys(from_file(file)),
        ["images.signatures[1].prefix", "images.signatures[2].prefix"]
    );
    let file =
        "images: {repository: r.example/team, signatures: [{prefix: r.example, key: a.pub}]}";
    assert_eq!(keys(from_file(file)), ["images.signatures[0].key"]);
}

#[test]
fn without_any_model_to_find_the_configuration_is_refused() {
    assert_eq!(keys(from_file("")), ["images.repository"]);
    assert_eq!(keys(load(None, [], &[])), ["images.repository"]);
}

#[test]
fn files_that_are_no_mapping_are_refused() {
    for text in ["[1, 2]", "just text", "a: [", "server: 5", "server: {grpc: 1, grpc: 2}"] {
        assert!(from_file(text).is_err(), "{text}");
    }
}

#[test]
fn variables_invented_by_kubernetes_are_mentioned_not_refused() {
    let environment = variables(&[
        ("OUTRIGGER_SERVER_SERVICE_HOST", "10.0.0.1"),
        ("OUTRIGGER_SERVER_PORT_9000_TCP", "tcp://10.0.0.1:9000"),
        ("OUTRIGGER_TENSORFLOW", "/opt/tensorflow"),
    ]);
    let ignored = load(Some(MINIMAL), environment, &[]).unwrap().ignored;
    assert_eq!(ignored, ["OUTRIGGER_SERVER_PORT_9000_TCP", "OUTRIGGER_SERVER_SERVICE_HOST"]);
    let kubernetes = |name: &str| name == "port" || name.starts_with("service_");
    let taken = |key: &Key| kubernetes(key.name);
    assert!(!sections().any(|(.., keys)| keys.iter().any(taken)), "would be overwritten");
}

#[test]
fn opentelemetry_variables_configure_traces_too() {
    let environment = variables(&[
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4317"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4317"),
        ("OTEL_SERVICE_NAME", "scores"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.5"),
        ("OTEL_RESOURCE_ATTRIBUTES", "team=growth,zone=a"),
        ("OUTRIGGER_TRACES_RATIO", "0.25"),
    ]);
    let traces = load(Some(MINIMAL), environment, &[]).unwrap().config.traces;
    assert_eq!(traces.endpoint.as_deref(), Some("http://traces:4317"));
    assert_eq!((traces.service.as_str(), traces.ratio.get()), ("scores", 0.25));
    assert_eq!(traces.attributes.as_deref(), Some("team=growth,zone=a"));
}

#[test]
fn traces_that_cannot_be_exported_are_refused() {
    let file = format!(
        "{MINIMAL}\ntraces: {{endpoint: 'collector:4317', ratio: 2, service: '', attributes: a}}"
    );
    let expected = ["traces.ratio", "traces.endpoint", "traces.service", "traces.attributes"];
    assert_eq!(keys(from_file(&file)), expected);
}

#[test]
fn lists_and_numbers_can_be_given_as_text() {
    let environment = variables(&[
        ("OUTRIGGER_IMAGES_ALLOWED", "[registry.example/team, 'oci:/models']"),
        ("OUTRIGGER_MODELS", "[{name: churn, preload: true}]"),
        ("OUTRIGGER_SERVER_MAX_USERS", "8"),
        ("OUTRIGGER_IMAGES_DEFAULT_TAG", "12"),
    ]);
    let config = load(Some(MINIMAL), environment, &[]).unwrap().config;
    assert_eq!(config.images.allowed, ["registry.example/team", "oci:/models"]);
    assert_eq!(config.server.max_users, 8);
    assert_eq!(config.images.default_tag.as_str(), "12");
    assert!(config.models[0].preload);
}

#[test]
fn listeners_may_not_share_an_address() {
    let file = format!("{MINIMAL}\nserver: {{grpc: '0.0.0.0:7000', http: '127.0.0.1:7000'}}");
    assert_eq!(keys(from_file(&file)), ["server.http"]);
    let free = format!("{MINIMAL}\nserver: {{grpc: '127.0.0.1:0', http: '127.0.0.1:0'}}");
    assert!(from_file(&free).is_ok());
}

/// A scored list of engines in the file.
const TWO_ENGINES: &str = "images: {repository: registry.example/team}
engines:
  large: {kind: tfserving, endpoint: '10.0.0.7:8500', store_path: /models, max_in_flight: 16}
  small: {kind: tfserving}
models:
  - {name: churn, engine: large}
";

#[test]
fn engines_have_names_and_models_name_them() {
    let config = from_file(TWO_ENGINES).unwrap().config;
    let names: Vec<_> = config.engines.unwrap().into_keys().map(|id| id.to_string()).collect();
    assert_eq!(names, ["large", "small"]);
    assert_eq!(config.models[0].engine, Some(EngineId::new("large")));
    let other = TWO_ENGINES.replace("engine: large", "engine: medium");
    assert_eq!(keys(from_file(&other)), ["models[0].engine"]);
    let short = "images: {repository: registry.example/team}\nmodels: [{name: a, engine: default}]";
    assert!(from_file(short).is_ok(), "the section engine means one called default");
}

#[test]
fn either_engine_or_engines_is_set_in_whatever_layers() {
    let sets = |layer: usize, key: &str, value: &str| {
        let (section, name) = key.split_once('.').unwrap_or((key, ""));
        let file = match (layer, name) {
            (0, "") => format!("{section}: {value}"),
            (0, _) => format!("{section}: {{{name}: '{value}'}}"),
            _ => String::new(),
        };
        let pair = |is_it: bool, key: String| is_it.then(|| (key, value.to_owned()));
        (file, pair(layer == 1, variable(key)), pair(layer == 2, key.to_owned()))
    };
    for (one, other) in (0..9).map(|pair| (pair / 3, pair % 3)) {
        let (short, long) = (
            sets(one, "engine.endpoint", "localhost:1"),
            sets(other, "engines", "{a: {kind: tfserving}}"),
        );
        let file = format!("{MINIMAL}\n{}\n{}\n", short.0, long.0);
        let environment = short.1.clone().into_iter().chain(long.1.clone());
        let flags: Vec<_> = short.2.clone().into_iter().chain(long.2.clone()).collect();
        let error = load(Some(&file), environment, &flags).unwrap_err();
        assert_eq!(error.0.len(), 1, "{error}");
        assert!(error.to_string().starts_with("engines: engine.endpoint ("), "{error}");
        for (file, variables, flags) in [short, long] {
            let file = format!("{MINIMAL}\n{file}");
            let flags: Vec<_> = flags.into_iter().collect();
            assert!(load(Some(&file), variables, &flags).is_ok(), "one alone is valid");
        }
    }
}

#[test]
fn entries_of_engines_are_checked_by_their_kind() {
    for (engines, key, message) in [
        (
            "{a: {kind: linear}}",
            "engines.a.kind",
            "unknown kind \"linear\"; known kinds: tfserving, trees, oip, onnx",
        ),
        ("{a: {endpoint: 'h:1'}}", "engines.a", "missing field `kind`"),
        ("{a: {kind: tfserving, endpont: 'h:1'}}", "engines.a.endpont", "unknown field"),
        ("{a: {kind: tfserving, connections: many}}", "engines.a.connections", "invalid type"),
        ("{a: {kind: tfserving, connections: 0}}", "engines.a.connections", "at least 1"),
        ("{a: {kind: tfserving, endpoint: 'unix:x'}}", "engines.a.endpoint", ""),
        ("{a: {kind: tfserving, store_path: x}}", "engines.a.store_path", "absolute"),
        ("{A: {kind: tfserving}}", "engines.A", "engine \"A\" is not valid"),
        ("{a: {kind: trees, batcher: {rows: 1}}}", "engines.a.batcher.rows", "unknown field"),
        ("{a: {kind: trees, batcher: 8}}", "engines.a.batcher", "invalid type"),
        ("{a: {kind: trees, batcher: {max_rows: 0}}}", "engines.a.batcher.max_rows", "at least 1"),
        ("{a: {kind: trees, batcher: {max_bytes: 0}}}", "engines.a.batcher.max_bytes", "at least"),
        (
            "{a: {kind: tfserving, batching: true, batcher: {}}}",
            "engines.a.batching",
            "only one of the two",
        ),
        ("[a]", "engines", "invalid type"),
    ] {
        let error = from_file(&format!("{MINIMAL}\nengines: {engines}")).unwrap_err();
        let [problem] = &error.0[..] else { panic!("{engines}: {error}") };
        assert_eq!(problem.key, key, "{engines}: {error}");
        assert!(problem.message.contains(message), "{engines}: {error}");
    }
}

#[test]
fn an_engine_that_batches_takes_as_many_users_as_callers_send() {
    let file = |users: u32, engine: &str| {
        from_file(&format!("{MINIMAL}\nserver: {{max_users: {users}}}\n{engine}"))
    };
    let batching = "{kind: tfserving, batching: true, max_batch_size: 32}";
    for (users, size) in [(33, "max_batch_size: 32"), (1001, "connections: 2")] {
        let engine = format!("engine: {{batching: true, {size}}}");
        assert_eq!(keys(file(users, &engine)), ["engine.max_batch_size"]);
        assert!(file(users - 1, &engine).is_ok());
    }
    let engines = keys(file(64, &format!("engines: {{a: {batching}}}")));
    assert_eq!(engines, ["engines.a.max_batch_size"]);
    assert!(file(64, "engine: {max_batch_size: 32}").is_ok(), "without batching");
}

#[test]
fn an_engine_in_the_process_stands_beside_either_section() {
    let make = |budget: &_| Arc::new(outrigger_testkit::linear::engine(budget)) as Arc<_>;
    let kinds = Kinds::shipped().with(Kind::in_process("linear", vec![LINEAR], make));
    let engines = |engines: &str| {
        let file = format!("{MINIMAL}\n{engines}\nmodels: [{{name: a, engine: linear}}]");
        let config = super::load(&kinds, Some(&file), [], &[])?.config;
        Ok(kinds.engines(&config).into_keys().map(|id| id.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(engines("").unwrap(), ["default", "linear", "trees"]);
    assert_eq!(engines("engines: {big: {kind: tfserving}}").unwrap(), ["big", "linear", "trees"]);
    assert_eq!(engines("engines: {}").unwrap(), ["linear", "trees"]);
    assert_eq!(engines("engines: {linear: {kind: linear}}").unwrap(), ["linear", "trees"]);
    assert_eq!(
        engines("engines: {linear: {kind: linear}, forest: {kind: trees}}").unwrap(),
        ["forest", "linear"]
    );
    let error = |text| engines(text).map_err(|error: Invalid| error.to_string()).unwrap_err();
    assert!(
        error("engines: {linear: {kind: tfserving}}").starts_with("engines.linear: the engine")
    );
    assert!(
        error("engines: {linear: {kind: linear, threads: 2}}").starts_with("engines.linear.thr")
    );
    assert!(error("engines: {a: {kind: linear}}").starts_with("models[0].engine: "));
}

#[test]
fn a_dump_of_engines_gives_the_same_configuration_again() {
    let loaded = from_file(TWO_ENGINES).unwrap();
    let dump = loaded.dump();
    assert!(dump.contains("engines: {\"large\":{") && dump.contains("}}  # file\n"), "{dump}");
    assert!(!dump.contains("engine:\n"), "only one of the two may be set: {dump}");
    assert_eq!(from_file(&dump).unwrap().config, loaded.config);
    assert!(!from_file(MINIMAL).unwrap().dump().contains("engines:"));
}

#[test]
fn the_headers_of_engines_are_not_dumped() {
    let text = "images: {repository: registry.example/team}
engines: {far: {kind: oip, endpoint: 'triton:8001', headers: {x-key: s3cret}}}";
    let dump = from_file(text).unwrap().dump();
    assert!(dump.contains("\"x-key\":\"(hidden)\"") && !dump.contains("s3cret"), "{dump}");
}

#[test]
fn the_settings_of_servers_of_the_inference_protocol_are_checked() {
    let error = |settings: &str| {
        let text = format!("{MINIMAL}\nengines: {{far: {{kind: oip{settings}}}}}");
        from_file(&text).map(drop).map_err(|error| error.to_string()).unwrap_err()
    };
    let cases = [
        ("", "engines.far"),
        (", endpoint: 'unix:/a'", "engines.far.endpoint"),
        (", endpoint: []", "engines.far.endpoint"),
        (", endpoint: 'a:1', prefix: '../b'", "engines.far.prefix"),
        (", endpoint: 'a:1', headers: {content-type: a}", "engines.far.headers"),
        (", endpoint: 'a:1', max_in_flight: 0", "engines.far.max_in_flight"),
        (", endpoint: 'a:1', store_path: /a", "engines.far.store_path"),
    ];
    for (settings, key) in cases {
        assert!(error(settings).starts_with(key), "{settings}: {}", error(settings));
    }
    let several = ", endpoint: ['a:1', 'https://b'], prefix: /c, load: true, token_file: /d";
    let text = format!("{MINIMAL}\nengines: {{far: {{kind: oip{several}}}}}");
    from_file(&text).expect("valid");
}

#[test]
fn a_dump_reproduces_the_configuration_and_names_origins() {
    let environment = variables(&[("OUTRIGGER_STORE_IDLE_TTL", "90s")]);
    let file = format!("{MINIMAL}\nmodels: [{{name: offers/spring, preload: true}}]");
    let loaded = load(Some(&file), environment, &[]).unwrap();
    let dump = loaded.dump();
    assert!(dump.contains("idle_ttl: \"90s\"  # environment OUTRIGGER_STORE_IDLE_TTL\n"), "{dump}");
    assert!(dump.contains("retain: \"7d\"\n"), "{dump}");
    assert_eq!(from_file(&dump).unwrap().config, loaded.config);
}

#[test]
fn the_example_of_the_architecture_page_is_valid() {
    let page = include_str!("../../../../docs/architecture.md");
    let blocks = page.split("```yaml\n").skip(1);
    let examples: Vec<_> = blocks.filter_map(|block| block.split("```").next()).collect();
    let configurations = examples.iter().filter(|example| example.contains("server:"));
    let mut seen = 0;
    for example in configurations {
        seen += 1;
        if let Err(error) = from_file(example) {
            panic!("{example}\n{error}");
        }
    }
    assert!(seen > 0, "the page has an example");
}

#[test]
fn the_operators_token_is_never_where_the_engine_can_read_it() {
    for (path, problems) in [
        ("/var/lib/outrigger/token", 1),
        ("/run/outrigger/token", 1),
        ("/run/outrigger-token/token", 0),
    ] {
        let loaded = from_file(&format!("{MINIMAL}\nauth: {{token_file: {path}}}"));
        let found = loaded.err().map_or(0, |invalid| invalid.0.len());
        assert_eq!(found, problems, "{path}");
    }
}

#[test]
fn the_operators_token_stands_in_for_other_credentials() {
    let auth = |text: &str| from_file(&format!("{MINIMAL}\n{text}")).unwrap().config.auth;
    let rights = |auth: &Auth, right| auth.anonymous_rights().hold(right);
    for (text, has_file, may_read) in [
        ("", true, true),
        ("auth: {anonymous: [predict]}", true, false),
        ("auth: {anonymous: [predict, read, change]}", false, true),
        ("auth: {tokens: /tokens}", false, false),
        ("auth: {tokens: /tokens, token_file: /control/token}", true, false),
    ] {
        let auth = auth(text);
        assert_eq!(auth.operator_file().is_some(), has_file, "{text}");
        assert_eq!(rights(&auth, Right::Read), may_read, "{text}");
    }
}

#[test]
fn the_listener_of_the_open_inference_protocol_has_an_address_of_its_own() {
    let with = |more: &str| from_file(&format!("{MINIMAL}\n{more}"));
    let config = with("server: {oip: '0.0.0.0:8001'}\nmodels: [{name: a, view: features}]");
    let config = config.unwrap().config;
    assert_eq!(config.server.oip.map(|address| address.port()), Some(8001));
    assert_eq!(config.models[0].view, View::Features);
    assert_eq!(keys(with("server: {oip: '127.0.0.1:9000'}")), ["server.oip"]);
    let mutual = with("server: {oip: '0.0.0.0:8001'}\ntls: {oip: mutual}");
    assert!(keys(mutual).contains(&"tls.oip".to_owned()));
    assert_eq!(keys(with("models: [{name: a, view: rows}]")), ["models[0].view"]);
}

#[test]
fn the_listener_of_xgboost_serving_has_an_address_of_its_own() {
    let with = |more: &str| from_file(&format!("{MINIMAL}\n{more}"));
    let config =
        with("server: {xgboost_serving: '0.0.0.0:8500'}\nauth: {xgboost_serving: [change]}");
    let config = config.unwrap().config;
    assert_eq!(config.server.xgboost_serving.map(|address| address.port()), Some(8500));
    assert!(config.auth.xgboost_serving.hold(Right::Change));
    let taken = with("server: {xgboost_serving: '127.0.0.1:9000'}");
    assert_eq!(keys(taken), ["server.xgboost_serving"]);
    assert_eq!(keys(with("auth: {xgboost_serving: [change]}")), ["auth.xgboost_serving"]);
    let mutual = with("server: {xgboost_serving: '0.0.0.0:8500'}\ntls: {xgboost_serving: mutual}");
    assert!(keys(mutual).contains(&"tls.xgboost_serving".to_owned()));
}
