//! The room beside predictions, for work that gives way to them: the validation of files, and
//! predictions of low priority.

use std::time::Duration;

use outrigger_lifecycle::Load;
use tokio::time::{Instant, sleep};

use crate::admission::Admission;

/// The interval at which waiting work looks for room.
const POLL: Duration = Duration::from_millis(1);
/// Work yields to predictions in progress for this long, unless others wait.
pub(crate) const YIELD: Duration = Duration::from_millis(100);

/// The room beside predictions. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Spare {
    admission: Admission,
    /// With fewer predictions in progress the engine has room.
    few: u32,
}

impl Spare {
    /// The room beside predictions that `threads` serve.
    pub(crate) fn new(admission: Admission, threads: usize) -> Self {
        Self { admission, few: u32::try_from(threads / 2).unwrap_or(u32::MAX).max(1) }
    }

    /// The number of predictions in progress that leave no room.
    pub(crate) fn few(&self) -> u32 {
        self.few
    }

    /// The number of predictions in progress.
    pub(crate) fn in_progress(&self) -> u32 {
        self.admission.in_progress()
    }

    /// Waits for room: no prediction waits, and there are few in progress beside the `own` ones, or
    /// they were yielded to for as long as `patience`. Work on a version that is known passes its
    /// `load`.
    pub(crate) async fn opens(&self, load: Option<&Load>, own: u32, patience: Duration) {
        let began = Instant::now();
        loop {
            let now = Instant::now();
            let is_contended =
                self.admission.is_contended() || load.is_some_and(|load| load.is_contended(now));
            let is_yielded = || self.in_progress() < self.few + own || now - began >= patience;
            if !is_contended && is_yielded() {
                return;
            }
            sleep(POLL).await;
        }
    }
}

/// Waits until no prediction waits for the version of `load`.
pub(crate) async fn calm(load: &Load) {
    while load.is_contended(Instant::now()) {
        sleep(POLL).await;
    }
}
