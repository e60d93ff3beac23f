//! Formats a report as text.

use std::fmt;

use super::{Phase, Quantiles, Report, Step};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, form, duration_seconds, users, .. } = self;
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        let interrupted = if self.interrupted { ", interrupted" } else { "" };
        writeln!(f, "{mode}, {form}, {duration_seconds} s{interrupted}")?;
        writeln!(f, "settings    {}", self.settings)?;
        writeln!(f, "users       {users} a request")?;
        if let Some(treatments) = self.treatments {
            writeln!(f, "treatments  {treatments} a user")?;
        }
        match self.offered_rate {
            Some(rate) => writeln!(f, "offered     {rate:.1} requests/s")?,
            None if self.steps.is_empty() => {}
            None => writeln!(f, "offered     no rate was found")?,
        }
        writeln!(f, "throughput  {:.1} requests/s", self.throughput)?;
        writeln!(f, "requests    {}, {} ok", self.requests, self.ok)?;
        for (reason, count) in &self.errors {
            writeln!(f, "  {count} {reason}: {}", self.error_messages[reason])?;
        }
        writeln!(f, "latency     {}", or_none(self.latency_ms))?;
        writeln!(f, "send delay  {}", or_none(self.send_delay_ms))?;
        for (process, seconds) in &self.cpu_seconds_per_request {
            match seconds {
                Some(seconds) => {
                    writeln!(f, "cpu         {:.1} µs a request: {process}", seconds * 1e6)?;
                }
                None => writeln!(f, "cpu         unknown: {process}")?,
            }
        }
        write!(f, "bytes       {:.0} a request", self.request_bytes)?;
        if let Some(response) = self.response_bytes {
            write!(f, ", {response:.0} an answer")?;
        }
        writeln!(f)
    }
}

/// The quantiles as text, or `none`.
fn or_none(quantiles: Option<Quantiles>) -> String {
    quantiles.map_or_else(|| "none".to_owned(), |quantiles| quantiles.to_string())
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:8}  {:.1}/s", self.phase, self.throughput)?;
        if let Some(rate) = self.offered_rate {
            write!(f, " of {rate:.1}/s")?;
        }
        match self.p99_ms {
            Some(p99) => write!(f, ", p99 {p99:.2} ms")?,
            None => write!(f, ", no answer")?,
        }
        for (reason, count) in &self.errors {
            write!(f, ", {count} {reason}")?;
        }
        if self.offered_rate.is_some() && !self.held {
            f.write_str(": not held")?;
        }
        Ok(())
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Estimate => "estimate",
            Self::Search => "search",
            Self::Confirm => "confirm",
        })
    }
}

impl fmt::Display for Quantiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { p50, p90, p99, p999, max, .. } = self;
        write!(
            f,
            "p50 {p50:.3} ms, p90 {p90:.3} ms, p99 {p99:.3} ms, p99.9 {p999:.3} ms, max {max:.3} ms"
        )
    }
}
