//! The identity of a process, by which others on the same machine see that it has ended.

use std::fs;

use serde::{Deserialize, Serialize};

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    /// The boot of the machine and the namespace of process numbers, in which `pid` is unique; empty
    /// if they are not known.
    scope: String,
    pid: u32,
    /// The time of its start, in ticks since the boot: numbers are used again.
    started: u64,
}

impl Process {
    /// This process.
    pub(crate) fn current() -> Self {
        let pid = std::process::id();
        Self { scope: scope().unwrap_or_default(), pid, started: started(pid).unwrap_or_default() }
    }

    /// True if the process is known to have ended. One of another machine is never known to.
    pub(crate) fn has_ended(&self) -> bool {
        let is_here = !self.scope.is_empty() && scope().is_some_and(|scope| scope == self.scope);
        is_here && started(self.pid) != Some(self.started)
    }

    /// A process of another machine.
    #[cfg(test)]
    pub(crate) fn elsewhere() -> Self {
        Self { scope: "elsewhere".to_owned(), ..Self::current() }
    }

    /// A process of this machine that has ended.
    #[cfg(test)]
    pub(crate) fn ended() -> Self {
        Self { started: 1, ..Self::current() }
    }
}

fn scope() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), namespace.display()))
}

/// The start of a process (proc(5), field 22 of `stat`); `None` if it has ended, also if its parent
/// has not noticed that.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before these fields may have spaces and parentheses.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    let started = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(started)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_has_ended_when_its_number_is_free_or_of_another() {
        assert!(!Process::current().has_ended());
        assert!(Process::ended().has_ended());
        let mut child = Command::new("true").spawn().expect("a process");
        let process = Process { pid: child.id(), ..Process::current() };
        child.wait().expect("ended");
        assert!(process.has_ended());
        assert!(!Process { scope: "elsewhere".to_owned(), ..process }.has_ended());
    }
}
