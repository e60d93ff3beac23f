//! How the kernel schedules the threads that serve.

use std::io;

/// What the kernel does with a thread that is woken while another one runs: sched(7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduling {
    /// It may interrupt the other one (`SCHED_OTHER`): it runs soon, whatever else there is.
    Normal,
    /// It waits for its turn (`SCHED_BATCH`). What runs on a core of its own is mostly what woke
    /// it, a caller in the middle of writing its requests or an engine in the middle of its
    /// answers: a moment later there are several to be read at once.
    Batch,
}

impl Scheduling {
    /// Has the calling thread, and those that it starts, scheduled like that.
    ///
    /// # Errors
    /// The system forbids it.
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

#[cfg(test)]
pub(crate) mod tests {
    use std::{fs, thread};

    use super::*;

    /// The calling thread's, as sched(7) numbers them.
    pub(crate) fn policy() -> i32 {
        // The 41st field of proc_pid_stat(5), of which the second may hold anything.
        let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, after_name) = stat.rsplit_once(')').unwrap();
        after_name.split_whitespace().nth(38).unwrap().parse().unwrap()
    }

    #[test]
    fn only_the_calling_thread_is_scheduled_anew() {
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
