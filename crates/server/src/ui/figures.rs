//! What the process counts, read from its own exposition: the one place that
//! knows names and labels of metrics. Requests pay nothing for the page.
//!
//! Series are added up over all labels that are not read here, so that a new
//! label changes nothing.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use crate::metrics::Exposition;

/// What was counted until now.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Figures {
    /// Of each model that has answered.
    pub(super) models: BTreeMap<String, Requests>,
    /// Bytes in the store by kind.
    pub(super) stored: BTreeMap<String, f64>,
    /// What the store may take, bytes.
    pub(super) store_size: f64,
    /// Things removed from the store to make room.
    pub(super) evictions: f64,
    /// Reloads of the engine's configuration by outcome.
    pub(super) reloads: BTreeMap<String, f64>,
    /// Calls that the engine has not answered yet.
    pub(super) engine_calls: f64,
    /// Requests being answered.
    pub(super) in_flight: f64,
}

/// The requests of a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Requests {
    /// How many took at most so long, in seconds; the last bound is infinite.
    pub(super) buckets: Vec<(f64, f64)>,
    /// How many failed, for whatever reason but the caller's going away.
    pub(super) failed: f64,
}

impl Figures {
    /// As of now. Takes about a microsecond a series.
    pub(super) fn read(exposition: &Exposition) -> Self {
        let mut reader = Reader::default();
        exposition.write(&mut reader).expect("reading does not fail");
        reader.figures
    }

    fn add(&mut self, sample: &Sample<'_>) {
        let Sample { name, value, .. } = *sample;
        match name {
            "outrigger_request_duration_seconds_bucket" => {
                let Some(bound) = sample.label("le").and_then(|le| le.parse().ok()) else { return };
                if let Some(model) = self.model(sample) {
                    model.took(bound, value);
                }
            }
            "outrigger_requests_total" => {
                let fine = matches!(sample.label("reason"), None | Some("OK" | "CANCELLED"));
                if let (false, Some(model)) = (fine, self.model(sample)) {
                    model.failed += value;
                }
            }
            "outrigger_store_size_bytes" => add(&mut self.stored, sample.label("kind"), value),
            "outrigger_store_max_size_bytes" => self.store_size += value,
            "outrigger_store_evictions_total" => self.evictions += value,
            "outrigger_engine_reloads_total" => {
                add(&mut self.reloads, sample.label("outcome"), value);
            }
            "outrigger_engine_calls_in_flight" => self.engine_calls += value,
            "outrigger_requests_in_flight" => self.in_flight += value,
            _ => {}
        }
    }

    /// The model that a sample is about, if it is about one.
    fn model(&mut self, sample: &Sample<'_>) -> Option<&mut Requests> {
        let name = sample.label("model").filter(|name| !name.is_empty())?;
        Some(self.models.entry(name.to_owned()).or_default())
    }
}

impl Requests {
    fn took(&mut self, bound: f64, count: f64) {
        match self.buckets.iter_mut().find(|(known, _)| *known == bound) {
            Some((_, sum)) => *sum += count,
            None => self.buckets.push((bound, count)),
        }
    }
}

fn add(sums: &mut BTreeMap<String, f64>, key: Option<&str>, value: f64) {
    *sums.entry(key.unwrap_or_default().to_owned()).or_default() += value;
}

/// Takes an exposition as it is written, line by line.
#[derive(Default)]
struct Reader {
    figures: Figures,
    line: Vec<u8>,
}

impl Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = std::str::from_utf8(&self.line).unwrap_or_default();
                if let Some(sample) = Sample::parse(line.trim_end()) {
                    self.figures.add(&sample);
                }
                self.line.clear();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line of the exposition.
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

impl<'a> Sample<'a> {
    /// `name{label="text",…} value`; nothing for comments.
    fn parse(line: &'a str) -> Option<Self> {
        if line.starts_with('#') {
            return None;
        }
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        Some(Self { name, labels: labels.strip_suffix('}')?, value: value.parse().ok()? })
    }

    /// The text of a label. Those read here hold no quotes: names of models and
    /// words of our own.
    fn label(&self, name: &str) -> Option<&'a str> {
        self.labels.split("\",").find_map(|label| {
            let (key, text) = label.split_once("=\"")?;
            (key == name).then(|| text.trim_end_matches('"'))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Figures {
        let mut reader = Reader::default();
        // In pieces, as they come.
        for piece in text.as_bytes().chunks(7) {
            reader.write_all(piece).unwrap();
        }
        reader.figures
    }

    #[test]
    fn series_are_added_up_over_labels_that_are_not_asked_for() {
        let figures = read(
            "# TYPE outrigger_request_duration_seconds histogram\n\
             outrigger_request_duration_seconds_bucket{method=\"predict\",model=\"a/b\",le=\"0.1\"} 2\n\
             outrigger_request_duration_seconds_bucket{method=\"predict\",model=\"a/b\",le=\"+Inf\"} 3\n\
             outrigger_request_duration_seconds_bucket{method=\"explain\",model=\"a/b\",le=\"0.1\"} 1\n\
             outrigger_request_duration_seconds_bucket{method=\"explain\",model=\"a/b\",le=\"+Inf\"} 1\n\
             outrigger_request_duration_seconds_bucket{method=\"other\",model=\"\",le=\"+Inf\"} 9\n\
             outrigger_requests_total{model=\"a/b\",arm=\"live\",reason=\"OK\"} 3\n\
             outrigger_requests_total{model=\"a/b\",arm=\"live\",reason=\"DEADLINE\"} 1\n\
             outrigger_store_size_bytes{kind=\"tree\"} 1e3\n\
             outrigger_store_max_size_bytes 5000\n\
             outrigger_engine_reloads_total{outcome=\"ok\"} 4\n",
        );
        let buckets = vec![(0.1, 3.0), (f64::INFINITY, 4.0)];
        assert_eq!(figures.models["a/b"], Requests { buckets, failed: 1.0 });
        assert_eq!(figures.models.len(), 1);
        assert_eq!(figures.stored["tree"], 1000.0);
        assert_eq!((figures.store_size, figures.reloads["ok"]), (5000.0, 4.0));
    }

    #[test]
    fn what_is_read_is_counted_somewhere() {
        let here = include_str!("figures.rs");
        let code = &here[..here.find("#[cfg(test)]").unwrap()];
        let named = code.split('"').filter(|text| text.starts_with("outrigger_"));
        let all = crate::metrics::all();
        for name in named {
            let name = name.trim_end_matches("_bucket");
            assert!(all.iter().any(|metric| metric.name == name), "{name} is no metric");
        }
    }
}
