//! The CPU time of processes, our own among them.

use std::{collections::BTreeMap, fs, time::Duration};

use rustix::{
    param::clock_ticks_per_second,
    time::{ClockId, clock_gettime},
};

use crate::Error;

/// What our own process is called.
const CLIENT: &str = "client";

/// A process whose CPU time is told, under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// What to call it, such as `control-plane`.
    pub name: String,
    /// Its process id.
    pub id: u32,
}

/// CPU time since the start of each process, user and system, of all its
/// threads.
#[derive(Debug)]
pub(crate) struct Times(BTreeMap<String, Duration>);

impl Times {
    /// The times as they are now.
    ///
    /// # Errors
    /// A process is not there.
    pub(crate) fn read(processes: &[Process]) -> Result<Self, Error> {
        let others = processes.iter().map(|process| Ok((process.name.clone(), of(process)?)));
        let ours = Ok((CLIENT.to_owned(), own()));
        others.chain([ours]).collect::<Result<_, _>>().map(Self)
    }

    /// Seconds a request since `earlier`, by process.
    pub(crate) fn per_request(&self, earlier: &Self, requests: u64) -> BTreeMap<String, f64> {
        let since = |(name, time): (&String, &Duration)| {
            let spent = time.saturating_sub(earlier.0.get(name).copied().unwrap_or_default());
            (name.clone(), spent.as_secs_f64() / requests.max(1) as f64)
        };
        self.0.iter().map(since).collect()
    }
}

fn own() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// `utime` and `stime` of /proc/PID/stat: fields 14 and 15 of proc(5).
fn of(process: &Process) -> Result<Duration, Error> {
    let path = format!("/proc/{}/stat", process.id);
    let text =
        fs::read_to_string(&path).map_err(|source| Error::File { path: path.into(), source })?;
    // The command's name, field 2, may hold spaces and parentheses.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_process_is_seen_under_its_name() {
        let ourselves = Process { name: "it".to_owned(), id: std::process::id() };
        let before = Times::read(std::slice::from_ref(&ourselves)).unwrap();
        let target = own() + Duration::from_millis(100);
        while own() < target {}
        let after = Times::read(&[ourselves]).unwrap();
        let spent = after.per_request(&before, 10);
        assert!(spent["client"] >= 0.01, "{spent:?}");
        // Counted in ticks of a hundredth of a second, and read one after the other while
        // other tests run.
        assert!(spent["it"] >= 0.008 && spent["it"] - spent["client"] < 0.05, "{spent:?}");
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        let gone = Process { name: "gone".to_owned(), id: u32::MAX };
        assert!(Times::read(&[gone]).unwrap_err().to_string().contains("/proc/4294967295/stat"));
    }
}
