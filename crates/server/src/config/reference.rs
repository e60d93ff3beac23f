//! The reference page of all settings, generated from their declarations.

use std::fmt::Write as _;

use super::{Key, batcher::Batcher, environment::variable, onnx::Onnx, section::Section, sections};

const INTRODUCTION: &str = "\
# Configuration

This page is generated from the code: `outrigger serve --print-reference configuration`.

Every setting has a default. A configuration file (`outrigger serve --config FILE`, YAML) replaces
defaults, an environment variable replaces the file's value, and a flag
(`--set server.grpc=127.0.0.1:9000`) replaces both. Values in variables and flags are written as in
the file; a list is `[a, b]`.

An unknown key, a value of the wrong type and an invalid value are errors. All of them are reported
together, each with the path of its key, and `outrigger serve` exits with 64 before it opens a
listener. A variable with the prefix of settings that names none is logged and otherwise ignored,
because Kubernetes creates such variables for Services. `--check-config` stops after the checks,
`--dump-config` prints the effective configuration and the origin of each value.

A key with `yes` in the column `reloads` changes at run time, when the file changes or on `SIGHUP`:
docs/operations.md, Reloading the configuration. All other keys need a restart.

Sizes are written `512MiB` or `20GiB`, durations `250ms`, `30s`, `10m` or `7d`.
";

const ENGINES: &str = "
## engines

The engines by name, if there are several, each with its `kind` and the keys of that kind. Names are
of `a-z`, `0-9`, `.`, `_` and `-`, and start with a letter or digit. Environment: `OUTRIGGER_ENGINES`.
The map replaces the section `engine`; only one of the two may be set. Where the map has no engine of
the kind `trees`, one with that name stands beside the others; a server for tree models only has
`engines: {trees: {kind: trees}}`.

```yaml
engines:
  default: {kind: tfserving, endpoint: 'unix:/run/outrigger/engine.sock'}
  large: {kind: tfserving, endpoint: '10.0.0.7:8500', store_path: /models, max_in_flight: 16}
```

| kind | keys |
|---|---|
| `tfserving` | those of `engine`: TensorFlow Serving, or `outrigger engine` |
| `trees` | none: tree models in this process (docs/trees.md) |
| `oip` | `endpoint` and others, below: servers of the Open Inference Protocol (docs/oip.md) |
| `onnx` | those below: ONNX models, in `outrigger onnx` (docs/onnx.md) |

The keys of an engine of the kind `oip`:

| key | default | meaning |
|---|---|---|
| `endpoint` | required | `host:port`, `http://host:port` or `https://host:port` of a server, or a list of those of several servers with the same models |
| `prefix` | none | a path before all paths of the protocol, as hosted endpoints have it; the server is then called over HTTP only |
| `headers` | none | headers of each request, by name; `--dump-config` hides their values |
| `token_file` | none | a file with a token, such as one of a Secret; it is read again when it changes, within 10 s |
| `token_header` | none | the header that has the token and nothing else, such as `x-api-key`; without it, `authorization: Bearer TOKEN` |
| `ca` | the system's | a file in PEM with the certificate authorities of the servers |
| `load` | `false` | loads and unloads models through the model repository extension |
| `repository` | none | the absolute path of a directory from which the servers read models; those that packages carry are published there and loaded, as with `load` (docs/oip.md) |
| `max_in_flight` | `128` | the most calls in flight at one server; fewer while it is overloaded |

The key `batcher` of an engine, of any kind, joins calls (below); `tfserving` can do so by itself
(`batching`), and takes only one of both.

Each engine of the kind `tfserving` has a directory of its own in the store: `serving` for
`default`, else `serving-NAME`. The directory of an engine that is no longer configured is
removed at the start.
";

const MODELS: &str = "
## models

A list of models that are known by name before the first request. Environment: `OUTRIGGER_MODELS`.
It reloads: models come and go at run time.

```yaml
models:
  - {name: churn, image: registry.example/team/churn, preload: true}
```

| key | value | default | |
|---|---|---|---|
";

const MODEL_KEYS: &[Key] = &[
    Key {
        name: "name",
        kind: "model name",
        default: None,
        about: " The name that requests use.",
        reloads: true,
    },
    Key {
        name: "image",
        kind: "reference",
        default: Some(""),
        about: " Its image without tag or digest; otherwise `images.repository`, `/` and the name.",
        reloads: true,
    },
    Key {
        name: "directory",
        kind: "path",
        default: Some(""),
        about: " A directory of numbered versions, from which the model comes instead of an image: docs/operations.md#directories-of-versions. Its versions are loaded and kept loaded without `preload`.",
        reloads: true,
    },
    Key {
        name: "versions",
        kind: "`{latest: n}`, `all` or `{specific: [n, ...]}`",
        default: Some("{latest: 1}"),
        about: " The versions of `directory` that are served: those with the highest numbers, all, or those named; at most 100.",
        reloads: true,
    },
    Key {
        name: "labels",
        kind: "numbers by tag",
        default: Some("{}"),
        about: " Further tags of versions of `directory`, as in `{stable: 7, canary: 8}`.",
        reloads: true,
    },
    Key {
        name: "preload",
        kind: "true or false",
        default: Some("false"),
        about: " Load it at the start, before the server is ready, and keep it loaded.",
        reloads: true,
    },
    Key {
        name: "tag",
        kind: "tag",
        default: Some(""),
        about: " The tag of a request that names no version; otherwise `images.default_tag`, or `latest` with `directory`.",
        reloads: true,
    },
    Key {
        name: "digest",
        kind: "digest",
        default: Some(""),
        about: " Pins requests that name no version to this digest.",
        reloads: true,
    },
    Key {
        name: "engine",
        kind: "engine",
        default: Some(""),
        about: " The engine that runs it; otherwise the only one that runs models of its framework.",
        reloads: true,
    },
    Key {
        name: "rollover",
        kind: "overlap or replace",
        default: Some("overlap"),
        about: " `overlap` loads a new version beside the old one; `replace` unloads the old one first: docs/operations.md#replacing-versions.",
        reloads: true,
    },
    Key {
        name: "view",
        kind: "tensors or features",
        default: Some("tensors"),
        about: " Its tensors in the Open Inference Protocol: `tensors` of its signature, or an input for each of its `features`: docs/oip.md#views.",
        reloads: true,
    },
];

/// The reference page of the configuration, Markdown.
pub fn reference_markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    for (section, about, keys) in sections() {
        write!(
            page,
            "\n## {section}\n\n{}\n\n| key | value | default | reloads | environment | |\n|---|---|---|---|---|---|\n",
            about.trim()
        )
        .expect("writing to a string");
        for key in keys {
            let variable = variable(&format!("{section}.{}", key.name));
            row(&mut page, key, Some(&variable));
        }
    }
    page.push_str(ENGINES);
    page.push_str(&subsection::<Onnx>("onnx"));
    page.push_str(&subsection::<Batcher>("batcher"));
    page.push_str(MODELS);
    for key in MODEL_KEYS {
        row(&mut page, key, None);
    }
    page
}

/// The keys of an engine's entry, under a heading of their own.
fn subsection<S: Section>(name: &str) -> String {
    let mut page = format!("\n### {name}\n\n{}\n\n", S::ABOUT.trim());
    page.push_str("| key | value | default | |\n|---|---|---|---|\n");
    S::KEYS.iter().for_each(|key| row(&mut page, key, None));
    page
}

/// Writes the row of a key; a key with an environment variable has a column that shows whether it
/// reloads.
fn row(page: &mut String, key: &Key, variable: Option<&str>) {
    let default = match key.default {
        None => "required".to_owned(),
        Some("") => "none".to_owned(),
        Some(default) => format!("`{default}`"),
    };
    let reloads = if key.reloads { "yes" } else { "" };
    let variable = variable.map(|name| format!(" {reloads} | `{name}` |")).unwrap_or_default();
    let (name, kind, about) = (key.name, key.kind, key.about.trim());
    writeln!(page, "| `{name}` | {kind} | {default} |{variable} {about} |")
        .expect("writing to a string");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Model;

    #[test]
    fn every_key_of_a_model_is_on_the_page() {
        let digest = format!("sha256:{}", "0".repeat(64));
        let model = serde_json::json!(
            {"name": "a", "image": "r.example/a", "tag": "live", "digest": digest, "engine": "large",
             "directory": "/a", "versions": {"latest": 2}, "labels": {"stable": 7}});
        let model: Model = serde_json::from_value(model).unwrap();
        let tree = serde_json::to_value(&model).unwrap();
        let mut keys: Vec<_> = tree.as_object().unwrap().keys().map(String::as_str).collect();
        let mut documented: Vec<_> = MODEL_KEYS.iter().map(|key| key.name).collect();
        keys.sort_unstable();
        documented.sort_unstable();
        assert_eq!(documented, keys);
    }
}
