//! The differences between two configurations.

use serde_json::{Map, Value};

use super::{Config, sections};

/// A setting whose value differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// The key's path, such as `server.grpc`.
    pub(crate) key: String,
    /// Whether the change takes effect without a restart.
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
    use crate::{config::Kinds, request_limits::RequestLimits, wiring};

    fn change(key: &str, reloads: bool, kind: &'static str) -> Change {
        Change { key: key.to_owned(), reloads, kind }
    }

    /// A value for every setting that reloads, other than its default.
    const OTHER: &[(&str, &str)] = &[
        ("canary.defaults", "{ramp: {share: 0.07}}"),
        ("canary.enabled", "false"),
        ("canary.overrides", "{mode: MODE_RECOMMEND}"),
        ("images.allowed", "[r.example]"),
        ("limits.callers", r#"{"token:gateway": 7}"#),
        ("limits.models", "{churn: 8}"),
        ("limits.per_caller", "3"),
        ("limits.per_model", "4"),
        ("limits.unknown_names", "9"),
        ("models", "[{name: a, preload: true}]"),
        ("server.default_deadline", "5s"),
        ("server.max_in_flight", "6"),
        ("server.max_treatments", "7"),
        ("server.max_users", "8"),
        ("server.max_waiting", "9"),
        ("store.idle_ttl", "10m"),
        ("store.retain", "11d"),
    ];

    #[tokio::test]
    async fn every_setting_that_reloads_is_applied() {
        let config = |other: &[(&str, &str)]| {
            let flag = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
            let flags: Vec<_> = other.iter().map(flag).collect();
            let file = "images: {repository: r.example/team}";
            crate::config::load(&Kinds::shipped(), Some(file), [], &flags).unwrap().config
        };
        let usual = config(&[]);
        let mut reloading: Vec<_> = tree(&usual).keys().flat_map(|section| keys(section)).collect();
        reloading.retain(|(_, reloads)| *reloads);
        reloading.sort();
        let listed: Vec<_> = OTHER.iter().map(|(key, _)| ((*key).to_owned(), true)).collect();
        assert_eq!(reloading, listed);
        for setting in OTHER {
            let other = config(&[*setting]);
            let limits = RequestLimits::new(&usual);
            let before = format!("{limits:?} {:?}", wiring::tunables(&usual));
            limits.apply(&other);
            let after = format!("{limits:?} {:?}", wiring::tunables(&other));
            assert_ne!(before, after, "{setting:?}");
            assert_eq!(format!("{limits:?}"), format!("{:?}", RequestLimits::new(&other)));
        }
    }

    #[test]
    fn each_changed_setting_is_named_without_its_value() {
        let load =
            |text| crate::config::load(&Kinds::shipped(), Some(text), [], &[]).unwrap().config;
        let old = load(
            "server: {max_users: 3, grpc: '127.0.0.1:1'}\nlimits: {per_model: 5}\n\
             images: {repository: r.example/team}\nlog: {level: debug}\nmodels: [{name: a}]",
        );
        assert_eq!(old.changes(&old), []);
        let new = load(
            "server: {max_users: 4, max_message: 1MiB}\nlimits: {unknown_names: 1024}\n\
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
