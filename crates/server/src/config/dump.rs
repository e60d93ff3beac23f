//! The configuration in force, as a file that gives it again.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Loaded, sections};

impl Loaded {
    /// The whole configuration as YAML, each value that is not a default with
    /// the place it comes from.
    ///
    /// It can be printed anywhere: credentials are files that settings name, and
    /// no setting holds one.
    pub fn dump(&self) -> String {
        let tree = serde_json::to_value(&self.config).expect("settings are plain data");
        let mut text = String::new();
        for (section, _, keys) in sections() {
            writeln!(text, "{section}:").expect("writing to a string");
            for key in keys {
                let path = format!("{section}.{}", key.name);
                self.line(&mut text, &format!("  {}", key.name), &path, &tree[section][key.name]);
            }
        }
        self.line(&mut text, "models", "models", &tree["models"]);
        text
    }

    /// JSON is YAML, and needs no quoting rules of ours.
    fn line(&self, text: &mut String, name: &str, path: &str, value: &Value) {
        write!(text, "{name}: {value}").expect("writing to a string");
        if let Some(origin) = self.origins.get(path) {
            write!(text, "  # {origin}").expect("writing to a string");
        }
        text.push('\n');
    }
}
