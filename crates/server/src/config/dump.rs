//! The effective configuration as a configuration file.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Loaded, sections};

/// Stands for the value of a header.
const HIDDEN: &str = "(hidden)";

impl Loaded {
    /// The whole configuration as YAML, with the origin of each value that is not a default.
    ///
    /// The text holds no secrets: credentials are files that settings name. The values of an engine's
    /// headers, which may be secret, are replaced by `HIDDEN`.
    pub fn dump(&self) -> String {
        let mut tree = serde_json::to_value(&self.config).expect("settings are plain data");
        hide_headers(&mut tree["engines"]);
        let mut text = String::new();
        // Only one of `engine` and `engines` may be set.
        let has_engines = self.config.engines.is_some();
        for (section, _, keys) in sections().filter(|(name, ..)| !has_engines || *name != "engine")
        {
            writeln!(text, "{section}:").expect("writing to a string");
            for key in keys {
                let path = format!("{section}.{}", key.name);
                self.line(&mut text, &format!("  {}", key.name), &path, &tree[section][key.name]);
            }
        }
        for list in ["engines", "models"].into_iter().filter(|list| !tree[list].is_null()) {
            self.line(&mut text, list, list, &tree[list]);
        }
        text
    }

    /// Writes the value as JSON: it is valid YAML, and needs no quoting rules of its own.
    fn line(&self, text: &mut String, name: &str, path: &str, value: &Value) {
        write!(text, "{name}: {value}").expect("writing to a string");
        if let Some(origin) = self.origins.get(path) {
            write!(text, "  # {origin}").expect("writing to a string");
        }
        text.push('\n');
    }
}

/// Replaces the values of the headers of engines.
fn hide_headers(engines: &mut Value) {
    let entries = engines.as_object_mut().into_iter().flat_map(|entries| entries.values_mut());
    let headers = entries.filter_map(|entry| entry.get_mut("headers")?.as_object_mut());
    headers.flat_map(|headers| headers.values_mut()).for_each(|value| *value = HIDDEN.into());
}
