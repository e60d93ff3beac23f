//! The effective configuration as a configuration file.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Loaded, sections};

impl Loaded {
    /// The whole configuration as YAML, with the origin of each value that is not a default.
    ///
    /// The text holds no secrets: credentials are files that settings name, and no setting holds
    /// one.
    pub fn dump(&self) -> String {
        let tree = serde_json::to_value(&self.config).expect("settings are plain data");
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
