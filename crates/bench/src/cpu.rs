//! CPU time of processes, including the load generator itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    time::Duration,
};

use rustix::{
    param::clock_ticks_per_second,
    time::{ClockId, clock_gettime},
};

use crate::Error;

/// Name of the load generator's own process.
const CLIENT: &str = "client";

/// A process whose CPU time is reported, under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// The name in reports, for example `control-plane`.
    pub name: String,
    /// Its process id.
    pub id: u32,
}

/// CPU time (user and system, all threads) of each process since its start; `None` for a
/// process that has ended.
#[derive(Debug)]
pub(crate) struct Times(BTreeMap<String, Option<Duration>>);

impl Times {
    /// Reads the current times.
    pub(crate) fn read(processes: &[Process]) -> Self {
        let others = processes.iter().map(|process| (process.name.clone(), of(process).ok()));
        Self(others.chain([(CLIENT.to_owned(), Some(own()))]).collect())
    }

    /// Seconds per request since `earlier`, by process; `None` without requests.
    pub(crate) fn per_request(
        &self,
        earlier: &Self,
        requests: u64,
    ) -> BTreeMap<String, Option<f64>> {
        let since = |name: &String| {
            let spent = self.0[name]?.saturating_sub(earlier.0[name]?);
            (requests > 0).then(|| spent.as_secs_f64() / requests as f64)
        };
        self.0.keys().map(|name| (name.clone(), since(name))).collect()
    }

    /// The processes that have ended.
    pub(crate) fn ended(&self) -> Vec<String> {
        let ended = self.0.iter().filter(|(_, time)| time.is_none());
        ended.map(|(name, _)| name.clone()).collect()
    }
}

/// Checks that all processes exist and have different names.
///
/// # Errors
/// A process does not exist, or a name is used twice.
pub(crate) fn find(processes: &[Process]) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    for process in processes {
        let name = process.name.as_str();
        if name == CLIENT {
            return Err(Error::Options(format!("{CLIENT} is the name of this process itself")));
        }
        if !names.insert(name) {
            return Err(Error::Options(format!("two processes are called {name}")));
        }
        of(process)?;
    }
    Ok(())
}

fn own() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// `utime` and `stime` of /proc/PID/stat: fields 14 and 15 of proc(5).
fn of(process: &Process) -> Result<Duration, Error> {
    let path = format!("/proc/{}/stat", process.id);
    let error = |source| Error::File { path: path.clone().into(), source };
    let text = fs::read_to_string(&path).map_err(error)?;
    // Field 2, the command's name, may contain spaces and parentheses.
    let mut fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    // A process that has ended stays listed (state Z) until its parent reads its exit
    // status.
    if matches!(fields.next(), Some("Z" | "X")) {
        return Err(error(io::Error::new(io::ErrorKind::NotFound, "the process has ended")));
    }
    let ticks: u64 = fields.skip(10).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_process_has_cpu_time_under_its_name() {
        let ourselves = Process { name: "it".to_owned(), id: std::process::id() };
        let before = Times::read(std::slice::from_ref(&ourselves));
        let target = own() + Duration::from_millis(100);
        while own() < target {}
        let after = Times::read(&[ourselves]);
        let spent = after.per_request(&before, 10);
        let [client, it] = ["client", "it"].map(|name| spent[name].unwrap());
        assert!(client >= 0.01, "{spent:?}");
        // The times have a resolution of a hundredth of a second, and are read one after
        // the other while other tests run.
        assert!(it >= 0.008 && it - client < 0.05, "{spent:?}");
    }

    #[test]
    fn a_missing_process_is_an_error() {
        let gone = Process { name: "gone".to_owned(), id: u32::MAX };
        assert!(find(&[gone]).unwrap_err().to_string().contains("/proc/4294967295/stat"));
    }
}
