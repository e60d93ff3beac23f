//! Formats models as text.

use std::{
    fmt::Write as _,
    time::{Duration, SystemTime},
};

use bytesize::ByteSize;
use outrigger_proto::outrigger::v1::{
    Engine, Failure, MemoryShortage, Model, ModelVersion, Replay, Tag, TagCanary,
    model_version::State,
};
use prost_types::Timestamp;

use crate::{canaries::render::phase, output::Table};

/// A table with one line per version.
pub fn list(models: &[Model]) -> String {
    let mut table = Table::new(&["MODEL", "TAGS", "DIGEST", "STATE", "ACTIVITY", "SIZE", "REASON"]);
    for model in models {
        for version in &model.versions {
            table.row([
                model.name.clone(),
                serving_tags(model, version).join(","),
                short(&version.digest),
                state(version.state()).to_owned(),
                version.activity.clone(),
                bytes(version.size_bytes),
                version.failure.as_ref().map(|failure| failure.reason.clone()).unwrap_or_default(),
            ]);
        }
    }
    table.to_string()
}

/// One model in detail: tags, versions, their history and failures.
pub fn why(model: &Model) -> String {
    let mut text = format!("{}\n", model.name);
    for tag in &model.tags {
        tag_lines(&mut text, tag).expect("writing to a string");
    }
    for version in &model.versions {
        version_lines(&mut text, model, version).expect("writing to a string");
    }
    text
}

fn tag_lines(text: &mut String, tag: &Tag) -> std::fmt::Result {
    let serving = match tag.serving_digest.as_str() {
        "" => "serves nothing yet".to_owned(),
        digest => format!("serves {}", short(digest)),
    };
    write!(text, "\n  tag {}: {serving}", tag.name)?;
    if tag.registry_digest != tag.serving_digest && !tag.registry_digest.is_empty() {
        write!(text, ", is {} in the registry", short(&tag.registry_digest))?;
    }
    writeln!(text)?;
    tag.canary.iter().try_for_each(|canary| canary_line(text, canary))?;
    tag.failure.iter().try_for_each(|failure| failure_lines(text, failure))
}

fn canary_line(text: &mut String, canary: &TagCanary) -> std::fmt::Result {
    let TagCanary { tag, digest, message, .. } = canary;
    let (phase, digest) = (phase(canary.phase()), short(digest));
    let separator = if message.is_empty() { "" } else { ": " };
    writeln!(text, "    canary   {tag} {digest} {phase}{separator}{message}")
}

fn version_lines(text: &mut String, model: &Model, version: &ModelVersion) -> std::fmt::Result {
    let state = state(version.state());
    writeln!(text, "\n  {}\n    state    {state} ({})", version.digest, version.activity)?;
    if !version.engine.is_empty() {
        writeln!(text, "    engine   {}", condition(model, &version.engine))?;
    }
    if !version.servable.is_empty() {
        writeln!(text, "    servable {} version {}", version.servable, version.servable_version)?;
    }
    if version.size_bytes > 0 {
        writeln!(text, "    size     {}", bytes(version.size_bytes))?;
    }
    if let Some(used) = &version.last_used_at {
        writeln!(text, "    used     {} ago", age(used))?;
    }
    version.replay.iter().try_for_each(|replay| replay_lines(text, replay))?;
    version.failure.iter().try_for_each(|failure| failure_lines(text, failure))?;
    version.memory_shortage.iter().try_for_each(|shortage| shortage_line(text, shortage))?;
    for step in &version.history {
        let at = step.at.as_ref().map(age).unwrap_or_default();
        let (from, to) = (self::state(step.from()), self::state(step.to()));
        writeln!(text, "    {at:>8} ago  {from} -> {to}  {}", step.cause)?;
    }
    Ok(())
}

/// An engine's name, with its problem if it has one.
fn condition(model: &Model, name: &str) -> String {
    let engine = model.engines.iter().find(|engine| engine.name == name);
    match engine {
        Some(Engine { reachable: false, failure, .. }) if failure.is_empty() => {
            format!("{name}, which has not answered yet")
        }
        Some(Engine { reachable: false, failure, .. }) => {
            format!("{name}, which does not answer: {failure}")
        }
        Some(Engine { failure, .. }) if !failure.is_empty() => format!("{name}: {failure}"),
        _ => name.to_owned(),
    }
}

fn replay_lines(text: &mut String, replay: &Replay) -> std::fmt::Result {
    let Replay { answered, skipped, failed, failure, .. } = replay;
    write!(text, "    warm-up  {answered} recent requests answered, {skipped} skipped")?;
    match failed {
        0 => writeln!(text),
        _ => writeln!(text, ", {failed} failed: {failure}"),
    }
}

fn failure_lines(text: &mut String, failure: &Failure) -> std::fmt::Result {
    let outlook = if failure.permanent { "until something changes" } else { "tried again" };
    writeln!(text, "    failed   {}: {} ({outlook})", failure.reason, failure.message)
}

fn shortage_line(text: &mut String, shortage: &MemoryShortage) -> std::fmt::Result {
    let MemoryShortage { account, waiting, .. } = shortage;
    let (used, limit) = (bytes(shortage.used_bytes), bytes(shortage.limit_bytes));
    let relation = if *waiting { "waits for" } else { "refused by" };
    writeln!(text, "    memory   {relation} the account {account}: {used} of {limit} in use now")
}

fn serving_tags(model: &Model, version: &ModelVersion) -> Vec<String> {
    let serving = model.tags.iter().filter(|tag| tag.serving_digest == version.digest);
    serving.map(|tag| tag.name.clone()).collect()
}

fn state(state: State) -> &'static str {
    state.as_str_name().trim_start_matches("STATE_")
}

/// The first 12 digits of a digest.
pub(crate) fn short(digest: &str) -> String {
    digest.trim_start_matches("sha256:").chars().take(12).collect()
}

fn bytes(size: u64) -> String {
    ByteSize(size).display().iec().to_string()
}

/// The time since `at`, in whole seconds.
pub(crate) fn age(at: &Timestamp) -> String {
    let at = SystemTime::try_from(*at).unwrap_or(SystemTime::UNIX_EPOCH);
    let age = SystemTime::now().duration_since(at).unwrap_or_default();
    humantime::format_duration(Duration::from_secs(age.as_secs())).to_string()
}

#[cfg(test)]
mod tests {
    use outrigger_proto::outrigger::v1::canary::Phase;

    use super::*;

    fn churn() -> Model {
        let failure = Failure {
            reason: "GOLDEN_MISMATCH".to_owned(),
            message: "case 2, treatment 0: 0.5 instead of 0.4".to_owned(),
            permanent: true,
            ..Failure::default()
        };
        let version = |digit: &str, state: State, failure: Option<Failure>| ModelVersion {
            digest: format!("sha256:{}", digit.repeat(64)),
            state: state.into(),
            activity: "idle".to_owned(),
            size_bytes: 3 << 20,
            replay: Some(Replay { answered: 15, failed: 1, ..Replay::default() }),
            memory_shortage: failure.is_some().then(|| MemoryShortage {
                account: "plans".to_owned(),
                used_bytes: 30 << 20,
                limit_bytes: 40 << 20,
                ..MemoryShortage::default()
            }),
            failure,
            engine: "large".to_owned(),
            ..ModelVersion::default()
        };
        let (good, bad) =
            (version("a", State::Available, None), version("b", State::Loaded, Some(failure)));
        let tag = Tag {
            name: "latest".to_owned(),
            serving_digest: good.digest.clone(),
            registry_digest: bad.digest.clone(),
            canary: Some(TagCanary {
                tag: "latest_canary".to_owned(),
                digest: bad.digest.clone(),
                phase: Phase::Waiting.into(),
                message: "waits for requests".to_owned(),
            }),
            ..Tag::default()
        };
        let failure = "connection refused".to_owned();
        let engine = Engine { name: "large".to_owned(), reachable: false, failure };
        let (tags, versions, engines) = (vec![tag], vec![good, bad], vec![engine]);
        Model { name: "churn".to_owned(), tags, versions, engines }
    }

    #[test]
    fn the_list_shows_which_version_a_tag_serves() {
        let text = list(&[churn()]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].contains("latest") && lines[1].contains("aaaaaaaaaaaa  AVAILABLE"));
        assert!(!lines[2].contains("latest") && lines[2].contains("GOLDEN_MISMATCH"));
    }

    #[test]
    fn why_shows_failures_and_the_state_of_the_registry() {
        let text = why(&churn());
        assert!(text.contains("serves aaaaaaaaaaaa, is bbbbbbbbbbbb in the registry"), "{text}");
        assert!(text.contains("case 2, treatment 0: 0.5 instead of 0.4"), "{text}");
        assert!(text.contains("latest_canary bbbbbbbbbbbb WAITING: waits for requests"), "{text}");
        assert!(text.contains("3.0 MiB"), "{text}");
        let engine = "engine   large, which does not answer: connection refused";
        assert!(text.contains(engine), "{text}");
        assert!(text.contains("15 recent requests answered, 0 skipped, 1 failed"), "{text}");
    }

    #[test]
    fn why_names_the_account_of_memory_that_has_no_room() {
        let mut model = churn();
        let (plans, used) = ("the account plans", "30.0 MiB of 40.0 MiB in use now");
        let text = why(&model);
        assert_eq!(text.matches("    memory   ").count(), 1, "{text}");
        assert!(text.contains(&format!("memory   refused by {plans}: {used}\n")), "{text}");
        model.versions[1].memory_shortage.as_mut().unwrap().waiting = true;
        let text = why(&model);
        assert!(text.contains(&format!("memory   waits for {plans}: {used}\n")), "{text}");
    }
}
