//! The control object of a job: the settings that change while it runs, from any machine.

use serde::{Deserialize, Serialize};

use crate::{Error, commit, hosts, job::Quota, plan::PLAN, store::Store};

/// The name of the control object in the output.
const CONTROL: &str = "control.json";

/// The changes to a job's settings, by name. One that is absent is as the job has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Control {
    /// The most rows in a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<u32>,
    /// The most requests in flight at one host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// The most rows a second to one host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_per_second: Option<u32>,
    /// The most requests a minute to one host, for language models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u32>,
    /// The most tokens a minute at one host, for language models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<u32>,
    /// The tokens in flight from which on a host gets no further request, for language models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_in_flight: Option<u32>,
    /// The hosts, by their endpoints. One that the job has keeps its further settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// True if no requests are sent.
    pub paused: bool,
    /// True if the job is to stop. Running it again revokes this.
    pub cancelled: bool,
}

impl Control {
    /// The control object of the job in a store. One that is damaged, as a crash of the machine may
    /// leave it, counts as absent, which is reported on standard error.
    ///
    /// # Errors
    /// It cannot be read, or has settings that this version does not know.
    pub fn read(store: &Store) -> Result<Self, Error> {
        Self::of(store.read(CONTROL).map_err(|error| Error::store(CONTROL, &error))?)
    }

    /// The control object of the job in a store.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or has settings that this version does not know.
    pub(crate) fn read_whole(store: &Store) -> Result<Self, Error> {
        Ok(commit::read(store, CONTROL)?.unwrap_or_default())
    }

    /// The control object from its JSON; the one without settings if there is none, or if it is
    /// damaged.
    fn of(json: Option<Vec<u8>>) -> Result<Self, Error> {
        let found = commit::if_whole::<serde_json::Value>(CONTROL, json, true);
        let control = found.map(serde_json::from_value).transpose();
        let invalid = |error| Error::failed(format!("{CONTROL}: {error}"));
        Ok(control.map_err(invalid)?.unwrap_or_default())
    }

    /// Changes the control object of the job in a store, which its workers read within a second.
    /// Returns it as it is then. `change` is called again if another process has changed the object meanwhile.
    ///
    /// # Errors
    /// There is no job, the store failed, or `change` did.
    pub fn change(
        store: &Store,
        mut change: impl FnMut(&mut Self) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let plan = store.read_start(PLAN, 1).map_err(|error| Error::store(PLAN, &error))?;
        if plan.is_none() {
            return Err(Error::usage(format!("{} is not a job", store.root().display())));
        }
        let mut changed = Self::default();
        store.update(CONTROL, |content| {
            changed = Self::of(content.map(<[u8]>::to_vec))?;
            change(&mut changed)?;
            commit::json(&changed)
        })?;
        Ok(changed)
    }

    /// The limits of a job with these changes.
    pub(crate) fn quota(&self, job: Quota) -> Quota {
        Quota {
            requests_per_minute: self.requests_per_minute.or(job.requests_per_minute),
            tokens_per_minute: self.tokens_per_minute.or(job.tokens_per_minute),
            tokens_in_flight: self.tokens_in_flight.or(job.tokens_in_flight),
        }
    }

    /// Changes one setting: `batch_size=256`, `concurrency=8`, `tokens_per_minute=90000`,
    /// `hosts=a:8001,b:8001` or `paused=true`. An empty value restores the job's.
    ///
    /// # Errors
    /// There is no such setting, or the value is not valid.
    pub fn set(&mut self, assignment: &str) -> Result<(), Error> {
        let Some((key, value)) = assignment.split_once('=') else {
            return Err(Error::usage(format!("{assignment:?} is not SETTING=VALUE")));
        };
        match key {
            "batch_size" => self.batch_size = positive(key, value)?,
            "concurrency" => self.concurrency = positive(key, value)?,
            "rows_per_second" => self.rows_per_second = positive(key, value)?,
            "requests_per_minute" => self.requests_per_minute = positive(key, value)?,
            "tokens_per_minute" => self.tokens_per_minute = positive(key, value)?,
            "tokens_in_flight" => self.tokens_in_flight = positive(key, value)?,
            "hosts" => {
                let hosts = value.split(',').map(str::trim).filter(|host| !host.is_empty());
                let hosts: Vec<_> = hosts.map(str::to_owned).collect();
                hosts.iter().try_for_each(|host| hosts::check(host))?;
                self.hosts = (!hosts.is_empty()).then_some(hosts);
            }
            "paused" => {
                self.paused = match value {
                    "true" => true,
                    "false" | "" => false,
                    _ => return Err(Error::usage("paused is true or false")),
                };
            }
            _ => {
                return Err(Error::usage(format!(
                    "{key:?} is none of batch_size, concurrency, rows_per_second, \
                     requests_per_minute, tokens_per_minute, tokens_in_flight, hosts, paused"
                )));
            }
        }
        Ok(())
    }
}

/// A number of at least 1; `None` for an empty text.
fn positive(key: &str, value: &str) -> Result<Option<u32>, Error> {
    if value.is_empty() {
        return Ok(None);
    }
    match value.parse() {
        Ok(number) if number > 0 => Ok(Some(number)),
        _ => Err(Error::usage(format!("{key} is a number of at least 1"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_job_has_settings_to_change() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::local(directory.path());
        let pause = |control: &mut Control| control.set("paused=true");
        assert!(matches!(Control::change(&store, pause), Err(Error::Usage(_))));
        assert!(store.is_empty().expect("read"));
        store.replace(PLAN, b"{}").expect("written");
        let paused = Control { paused: true, ..Control::default() };
        assert_eq!(Control::change(&store, pause), Ok(paused.clone()));
        assert!(Control::change(&store, |control| control.set("memory=1")).is_err());
        assert_eq!(Control::read(&store), Ok(paused));
    }

    #[test]
    fn changes_at_the_same_time_are_all_kept() {
        const THREADS: u32 = 8;
        const CHANGES: u32 = 25;
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::local(directory.path());
        store.replace(PLAN, b"{}").expect("written");
        let increment = |control: &mut Control| {
            control.batch_size = Some(control.batch_size.unwrap_or(0) + 1);
            Ok(())
        };
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..CHANGES {
                        Control::change(&store, increment).expect("changed");
                    }
                });
            }
        });
        let control = Control::read(&store).expect("read");
        assert_eq!(control.batch_size, Some(THREADS * CHANGES));
    }

    #[test]
    fn a_damaged_object_counts_as_absent_and_is_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::local(directory.path());
        store.replace(PLAN, b"{}").expect("written");
        for damaged in ["", "\0\0\0\0", "{\"paused\": tr"] {
            store.replace(CONTROL, damaged.as_bytes()).expect("written");
            assert_eq!(Control::read(&store), Ok(Control::default()), "{damaged:?}");
            assert!(Control::read_whole(&store).is_err(), "a job that runs keeps its settings");
            let paused = Control::change(&store, |control| control.set("paused=true"));
            assert!(paused.expect("changed").paused);
            assert!(Control::read_whole(&store).expect("whole again").paused);
        }
        store.replace(CONTROL, b"{\"later\": 1}").expect("written");
        assert!(Control::read(&store).is_err(), "a setting of another version is no damage");
    }

    #[test]
    fn settings_are_set_and_restored() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::local(directory.path());
        let mut control = Control::read(&store).expect("none yet");
        assert_eq!(control, Control::default());
        for assignment in [
            "batch_size=8",
            "concurrency=2",
            "rows_per_second=50",
            "requests_per_minute=60",
            "tokens_per_minute=9000",
            "tokens_in_flight=100",
            "hosts=a:1, b:2",
            "paused=true",
        ] {
            control.set(assignment).expect(assignment);
        }
        store.replace(CONTROL, &commit::json(&control).expect("JSON")).expect("written");
        let control = Control::read(&store).expect("written before");
        let hosts = Some(vec!["a:1".to_owned(), "b:2".to_owned()]);
        let expected = Control {
            batch_size: Some(8),
            concurrency: Some(2),
            rows_per_second: Some(50),
            requests_per_minute: Some(60),
            tokens_per_minute: Some(9000),
            tokens_in_flight: Some(100),
            hosts,
            paused: true,
            cancelled: false,
        };
        assert_eq!(control, expected);
        let mut control = control;
        for key in [
            "batch_size",
            "concurrency",
            "rows_per_second",
            "requests_per_minute",
            "tokens_per_minute",
            "tokens_in_flight",
            "hosts",
            "paused",
        ] {
            control.set(&format!("{key}=")).expect(key);
        }
        assert_eq!(control, Control::default());
        for wrong in [
            "batch_size=0",
            "batch_size",
            "memory=1",
            "paused=yes",
            "concurrency=-1",
            "rows_per_second=0",
            "hosts=a:1,ftp://b/c",
        ] {
            assert!(control.set(wrong).is_err(), "{wrong}");
            assert_eq!(control, Control::default());
        }
    }
}
