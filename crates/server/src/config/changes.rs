//! The differences between two configurations.

use serde_json::{Map, Value};

use super::{Config, sections};

/// A setting whose value differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// The key's path, such as `server.grpc`.
    pub(crate) key: String,
    /// Whether the change comes into force without a restart.
    pub(crate) reloads: bool,
    /// The kind of change. It never includes a value.
    pub(crate) kind: &'static str,
}

impl Config {
    /// The settings whose values in `next` differ from those in `self`.
    pub(crate) fn changes(&self, next: &Self) -> Vec<Change> {
        let (old, new, default) = (tree(self), tree(next), tree(&Self::default()));
        let settings = old.keys().flat_map(|section| keys(section));
        let changed = settings.filter_map(|(key, reloads)| {
            let [old, new, default] = [&old, &new, &default].map(|tree| value(tree, &key));
            let kind = match (old == default, new == default) {
                _ if old == new => return None,
                (true, _) => "was not given",
                (_, true) => "is no longer given",
                (false, false) => "has another value",
            };
            Some(Change { key, reloads, kind })
        });
        changed.collect()
    }
}

fn tree(config: &Config) -> Map<String, Value> {
    match serde_json::to_value(config) {
        Ok(Value::Object(tree)) => tree,
        _ => unreachable!("a configuration is a mapping of sections"),
    }
}

/// The paths of the keys of a section or list, and whether each reloads.
fn keys(section: &str) -> Vec<(String, bool)> {
    match sections().find(|(name, ..)| *name == section) {
        Some((_, _, keys)) => {
            keys.iter().map(|key| (format!("{section}.{}", key.name), key.reloads)).collect()
        }
        None => vec![(section.to_owned(), section == "models")],
    }
}

fn value<'a>(tree: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    match key.split_once('.') {
        Some((section, name)) => tree.get(section)?.get(name),
        None => tree.get(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(key: &str, reloads: bool, kind: &'static str) -> Change {
        Change { key: key.to_owned(), reloads, kind }
    }

    #[test]
    fn each_changed_setting_is_named_without_its_value() {
        let load = |text| crate::config::load(Some(text), [], &[]).unwrap().config;
        let old = load(
            "server: {max_users: 3, grpc: '127.0.0.1:1'}\nlimits: {per_model: 5}\n\
             images: {repository: r.example/team}\nlog: {level: debug}\nmodels: [{name: a}]",
        );
        assert_eq!(old.changes(&old), []);
        let new = load(
            "server: {max_users: 4, max_message: 1MiB}\nlimits: {per_caller: 0}\n\
             images: {repository: r.example/team}\nlog: {level: info}",
        );
        let mut changes = old.changes(&new);
        changes.sort_by(|a, b| a.key.cmp(&b.key));
        assert_eq!(
            changes,
            [
                change("limits.per_model", true, "is no longer given"),
                change("log.level", false, "is no longer given"),
                change("models", true, "is no longer given"),
                change("server.grpc", false, "is no longer given"),
                change("server.max_message", false, "was not given"),
                change("server.max_users", true, "has another value"),
            ]
        );
    }
}
