//! The kernel's scheduling policy for the serving threads, and the priority of others.

use std::io;

use rustix::process::{getpriority_process, setpriority_process};

/// The nice value of threads of a lower priority.
const NICE: i32 = 10;

/// The policy for a thread that is woken while another one runs: sched(7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduling {
    /// The woken thread may preempt the running one (`SCHED_OTHER`), so it runs soon.
    Normal,
    /// The woken thread waits for its turn (`SCHED_BATCH`). The running thread is mostly the one
    /// that woke it: a caller in the middle of writing its requests, or an engine in the middle of
    /// its answers. A moment later several can be read at once.
    Batch,
}

impl Scheduling {
    /// Sets the policy of the calling thread, and of the threads it starts later.
    ///
    /// # Errors
    /// The system does not permit it.
    pub(crate) fn apply(self) -> io::Result<()> {
        let policy = match self {
            Self::Normal => libc::SCHED_OTHER,
            Self::Batch => libc::SCHED_BATCH,
        };
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the pointer is valid for the call, which only reads what it points to.
        match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Lowers the priority of the calling thread: it gets about a tenth of the processor's time while
/// others need all of it.
///
/// # Errors
/// The system does not permit it.
pub fn lower_priority() -> io::Result<()> {
    // Linux applies this to the calling thread only.
    let priority = getpriority_process(None)?;
    Ok(setpriority_process(None, priority.max(NICE))?)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{fs, thread};

    use super::*;

    /// The calling thread's policy, by its number in sched(7).
    pub(crate) fn policy() -> i32 {
        // The policy is the 41st field of proc_pid_stat(5). The second field, the thread's name,
        // may contain any characters, so fields are counted after its closing parenthesis.
        let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, after_name) = stat.rsplit_once(')').unwrap();
        after_name.split_whitespace().nth(38).unwrap().parse().unwrap()
    }

    #[test]
    fn the_policy_is_set_for_the_calling_thread_only() {
        let before = policy();
        let seen = thread::spawn(|| {
            [Scheduling::Batch, Scheduling::Normal].map(|scheduling| {
                scheduling.apply().unwrap();
                policy()
            })
        });
        assert_eq!(seen.join().unwrap(), [libc::SCHED_BATCH, libc::SCHED_OTHER]);
        assert_eq!(policy(), before);
    }
}
