//! The figures of the page, read from the server's own metrics. Only this file depends on the names
//! and labels of metrics. The page adds no cost to requests.
//!
//! Series are summed over all labels that are not read here, so that a new label changes nothing.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use serde::Serialize;

use crate::Server;

/// The values of the metrics at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Figures {
    /// The requests of each model that has answered.
    pub(crate) models: BTreeMap<String, Requests>,
    /// The bytes in the store by kind.
    pub(crate) stored: BTreeMap<String, f64>,
    /// The size limit of the store in bytes.
    pub(crate) store_size: f64,
    /// The number of evictions from the store.
    pub(crate) evictions: f64,
    /// The figures of each engine that has any.
    pub(crate) engines: BTreeMap<String, EngineFigures>,
    /// The number of requests in progress.
    pub(crate) in_flight: f64,
    /// The accounts of the server's memory.
    pub(crate) accounts: BTreeMap<String, Account>,
}

/// An account of the server's memory, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Account {
    pub(crate) used: f64,
    pub(crate) limit: f64,
    /// The number of refusals by reason.
    pub(crate) refused: BTreeMap<String, f64>,
}

/// The figures of an engine.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct EngineFigures {
    /// The number of reloads of its configuration by outcome.
    pub(crate) reloads: BTreeMap<String, f64>,
    /// The number of calls that it has not answered yet.
    pub(crate) calls: f64,
}

/// The requests of a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Requests {
    /// Histogram buckets: an upper bound in seconds with the number of requests up to it. The last
    /// bound is infinite.
    pub(crate) buckets: Vec<(f64, f64)>,
    /// The number of failed requests, except those that the caller cancelled.
    pub(crate) failed: f64,
}

/// Adds a sample of a series to the figures.
type Take = fn(&mut Figures, &Sample<'_>);

/// The series that are read, by name.
const SERIES: &[(&str, Take)] = &[
    ("outrigger_request_duration_seconds_bucket", Figures::took),
    ("outrigger_requests_total", Figures::ended),
    ("outrigger_store_size_bytes", |it, sample| {
        add(&mut it.stored, sample.label("kind"), sample.value);
    }),
    ("outrigger_store_max_size_bytes", |it, sample| it.store_size += sample.value),
    ("outrigger_store_evictions_total", |it, sample| it.evictions += sample.value),
    ("outrigger_engine_reloads_total", |it, sample| {
        add(&mut it.engine(sample).reloads, sample.label("outcome"), sample.value);
    }),
    ("outrigger_engine_calls_in_flight", |it, sample| it.engine(sample).calls += sample.value),
    ("outrigger_requests_in_flight", |it, sample| it.in_flight += sample.value),
    ("outrigger_memory_used_bytes", |it, sample| it.account(sample).used += sample.value),
    ("outrigger_memory_limit_bytes", |it, sample| it.account(sample).limit += sample.value),
    ("outrigger_memory_refusals_total", |it, sample| {
        add(&mut it.account(sample).refused, sample.label("reason"), sample.value);
    }),
];

/// The names of the metrics that the page reads from the server.
pub fn metrics() -> impl Iterator<Item = &'static str> {
    SERIES.iter().map(|(series, _)| series.trim_end_matches("_bucket"))
}

impl Figures {
    /// Reads the current figures. It takes about a microsecond per series.
    pub(crate) fn read(server: &dyn Server) -> Self {
        let mut reader = Reader::default();
        server.write_metrics(&mut reader).expect("the reader takes every write");
        reader.figures
    }

    fn add(&mut self, sample: &Sample<'_>) {
        if let Some((_, take)) = SERIES.iter().find(|(name, _)| *name == sample.name) {
            take(self, sample);
        }
    }

    fn took(&mut self, sample: &Sample<'_>) {
        let Some(bound) = sample.label("le").and_then(|le| le.parse().ok()) else { return };
        if let Some(model) = self.model(sample) {
            model.took(bound, sample.value);
        }
    }

    fn ended(&mut self, sample: &Sample<'_>) {
        let fine = matches!(sample.label("reason"), None | Some("OK" | "CANCELLED"));
        if let (false, Some(model)) = (fine, self.model(sample)) {
            model.failed += sample.value;
        }
    }

    /// The entry of the engine in a sample's labels.
    fn engine(&mut self, sample: &Sample<'_>) -> &mut EngineFigures {
        self.engines.entry(sample.label("engine").unwrap_or_default().to_owned()).or_default()
    }

    /// The entry of the account in a sample's labels.
    fn account(&mut self, sample: &Sample<'_>) -> &mut Account {
        self.accounts.entry(sample.label("account").unwrap_or_default().to_owned()).or_default()
    }

    /// The entry of the model in a sample's labels; `None` without that label.
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

/// Parses an exposition while it is written, line by line.
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
    /// Parses `name{label="text",…} value`; `None` for comments.
    fn parse(line: &'a str) -> Option<Self> {
        if line.starts_with('#') {
            return None;
        }
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        Some(Self { name, labels: labels.strip_suffix('}')?, value: value.parse().ok()? })
    }

    /// The value of a label. The labels read here contain no quotes: they are names of models and
    /// fixed words of the server.
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
        // The small chunks cross line boundaries, as they can in use.
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
             outrigger_engine_reloads_total{engine=\"big\",outcome=\"ok\"} 4\n\
             outrigger_engine_calls_in_flight{engine=\"big\",method=\"predict\"} 2\n\
             outrigger_engine_calls_in_flight{engine=\"big\",method=\"status\"} 1\n\
             outrigger_engine_calls_in_flight{engine=\"small\",method=\"predict\"} 5\n\
             outrigger_memory_used_bytes{account=\"requests\"} 10\n\
             outrigger_memory_limit_bytes{account=\"requests\"} 40\n\
             outrigger_memory_refusals_total{account=\"requests\",reason=\"OVERLOADED\"} 2\n\
             outrigger_memory_refusals_total{account=\"requests\",reason=\"TOO_LARGE\"} 1\n",
        );
        let refused = [("OVERLOADED".to_owned(), 2.0), ("TOO_LARGE".to_owned(), 1.0)].into();
        let requests = Account { used: 10.0, limit: 40.0, refused };
        assert_eq!(figures.accounts["requests"], requests);
        let buckets = vec![(0.1, 3.0), (f64::INFINITY, 4.0)];
        assert_eq!(figures.models["a/b"], Requests { buckets, failed: 1.0 });
        assert_eq!(figures.models.len(), 1);
        assert_eq!(figures.stored["tree"], 1000.0);
        assert_eq!(figures.store_size, 5000.0);
        let big = EngineFigures { reloads: [("ok".to_owned(), 4.0)].into(), calls: 3.0 };
        assert_eq!((&figures.engines["big"], figures.engines["small"].calls), (&big, 5.0));
    }
}
