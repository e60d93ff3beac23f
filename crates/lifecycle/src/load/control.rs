//! The estimates for one version: how long a request takes when it does not wait, how many are
//! answered in a second, how many may be in progress at a time, and how early callers give up.
//!
//! The limit is [`READY`] times the number that the engine works on, which is the rate times the
//! usual duration (Little's law). At this limit requests take so much longer than usual. Below it
//! they take less, and the limit grows from window to window, so that a limit that is too small
//! does not stay. The method is that of BBR (Cardwell et al., "BBR: Congestion-Based Congestion
//! Control", ACM Queue 2016): the product of the greatest rate and the least delay, the latter
//! measured again at times with few in progress, because with a queue it cannot be seen. Envoy's
//! adaptive concurrency filter measures its "minRTT" likewise.

/// The number in progress while nothing is known about a version.
pub(super) const FIRST: u32 = 16;
/// The least number in progress: one that the engine works on, and one that is ready.
const LEAST: u32 = 2;
/// The number in progress over that which the engine works on, as a fraction: some are ready when
/// it has done others.
const READY: (u64, u64) = (7, 4);
/// The time for which a version counts as crowded after it was found to be.
const CROWDED: u64 = 5_000_000;
/// The time after which the usual duration of a version that is not crowded may rise by a tenth.
const GENERATION: u64 = 10_000_000;
/// The time between two trials of a crowded version.
const BETWEEN: u64 = 10_000_000;
/// The least time between two trials, of which the second is made because the limit has changed.
const BETWEEN_CHANGES: u64 = 1_000_000;
/// In a trial this part of the limit may be in progress: less than the engine works on at a time,
/// also if the rate is estimated a tenth too high.
const PART: (u32, u32) = (1, 2);
/// After a trial that found a shorter duration than expected, so that it had a queue itself, the
/// next one has this part of the limit in progress.
const SMALL_PART: (u32, u32) = (1, 4);
/// The growth of the limit from one window to the next while the engine is not saturated.
const GROWTH: u32 = 3;
/// The number of requests that a trial measures.
const SAMPLES: u32 = 16;
/// The estimate of how early callers give up grows while more than one in so many admitted requests
/// is not answered in time.
const MISSED: u32 = 20;
/// The least step and the greatest value of that estimate.
const EARLY: (u64, u64) = (10_000, 500_000);
/// The longest run beside the load that excuses requests which take longer than usual. Runs of low
/// priority take longer themselves while there are too many requests.
const BESIDE: u64 = 10_000;
/// The shortest time over which answers are measured.
const WINDOW: u64 = 100_000;
/// The longest time over which answers are measured.
const LONGEST_WINDOW: u64 = 1_000_000;

/// The estimates. All times are in microseconds.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// The mean duration of requests when they do not wait; 0: not known yet.
    pub(super) usual: u64,
    /// Answers in a second while there were always requests in progress.
    pub(super) rate: u32,
    /// True if requests took longer than usual, so that more in progress would not raise the rate,
    /// and the limit has not grown since.
    pub(super) is_saturated: bool,
    /// True if requests did not take longer than usual although as many were in progress as may be.
    is_growing: bool,
    pub(super) crowded_until: u64,
    /// The number of requests that may be in progress while the version is crowded and no trial is
    /// under way.
    limit: u32,
    /// The least mean duration in this generation.
    least: Option<u64>,
    generation: u64,
    trial: Option<Trial>,
    /// The end of the last trial, and the limit after it.
    tried: Option<(u64, u32)>,
    /// True if the last trial ended when the window began, so that fewer were in progress than may
    /// be.
    has_tried: bool,
    /// True if the last trial found a shorter duration than expected.
    is_falling: bool,
    /// The time by which callers give up earlier than their deadlines say: they count from the time
    /// at which they send, and not from the arrival.
    pub(super) early: u64,
    /// The time since which it has not risen.
    pub(super) early_since: u64,
}

/// A measurement of the usual duration with few requests in progress.
#[derive(Debug)]
struct Trial {
    began: u64,
    /// The requests that are still to be chosen; `None` while too many are in progress.
    left: Option<u32>,
    chosen: u32,
    ended: u32,
    answers: u32,
    took: u64,
}

/// The measurements of a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    pub(super) now: u64,
    pub(super) lasted: u64,
    pub(super) answers: u32,
    /// Requests that had been admitted, and whose callers gave up.
    pub(super) missed: u32,
    /// The sum of the durations of answers.
    pub(super) took: u64,
    /// The least number of requests in progress.
    pub(super) always: u32,
    /// The number of requests in progress at its end.
    pub(super) in_flight: u32,
    /// True if requests waited or were refused.
    pub(super) has_waited: bool,
    /// The longest run beside the load.
    pub(super) beside: u64,
}

impl Control {
    /// The number of requests that may be in progress while the version is crowded.
    pub(super) fn limit(&self) -> u32 {
        match &self.trial {
            _ if self.usual == 0 => FIRST,
            Some(_) => self.tried_with(),
            None => self.limit,
        }
    }

    /// True while the usual duration is measured again.
    pub(super) fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    /// The shortest and the longest time of a window.
    pub(super) fn window(&self) -> (u64, u64) {
        (WINDOW.max(self.usual * 3 / 2), LONGEST_WINDOW.max(self.usual * 4))
    }

    fn tried_with(&self) -> u32 {
        let (part, of) = if self.is_falling { SMALL_PART } else { PART };
        (self.limit.saturating_mul(part) / of).max(1)
    }

    /// Takes the measurements of a window.
    pub(super) fn measure(&mut self, window: &Measured) {
        let is_crowded = window.has_waited || window.now < self.crowded_until;
        self.follow_misses(window);
        let mean = window.took.checked_div(window.answers.into());
        match mean {
            Some(mean) if self.usual == 0 => self.usual = mean.max(1),
            Some(mean) if !is_crowded => self.usual_in_calm(window.now, mean.max(1)),
            // Requests wait for each other, so only a trial measures the usual duration.
            _ => {}
        }
        if self.usual == 0 {
            return;
        }
        self.judge(window, mean);
        self.estimate(window, is_crowded);
        let is_slow = window.always > 0
            && window.in_flight >= self.limit
            && mean.is_some_and(|mean| mean > self.usual * 2 + window.beside.min(BESIDE));
        if window.has_waited || is_slow {
            self.crowded_until = window.now + CROWDED;
        }
        if window.has_waited && self.is_due(window.now) {
            self.trial = Some(Trial {
                began: window.now,
                left: None,
                chosen: 0,
                ended: 0,
                answers: 0,
                took: 0,
            });
        }
    }

    /// Estimates how early callers give up. The time cannot be seen, but admitted requests that are
    /// not answered in time show that it is longer. It grows by a quarter then, or doubles if most
    /// are not answered in time, and falls by a sixteenth otherwise.
    fn follow_misses(&mut self, window: &Measured) {
        let (step, most) = EARLY;
        let Measured { missed, answers, .. } = *window;
        let growth = if missed > answers { self.early } else { self.early / 4 };
        if missed * MISSED > answers + missed {
            self.early = (self.early + growth.max(step)).min(most);
            self.early_since = window.now;
        } else {
            self.early -= self.early.div_ceil(16);
        }
    }

    /// Decides whether the engine could answer more if more were in progress.
    fn judge(&mut self, window: &Measured, mean: Option<u64>) {
        let is_longer = mean.is_none_or(|mean| mean * 4 > self.usual * 5);
        let limit = self.limit();
        let is_full = window.has_waited && window.in_flight >= limit - limit / 8;
        // The answers are those of as many in progress as may be, and not of fewer before.
        let working = u64::from(window.answers) * self.usual / window.lasted.max(1);
        let is_settled = !self.has_tried && working >= u64::from(limit) * 3 / 4;
        self.is_growing = !is_longer && is_full && is_settled;
        self.has_tried = false;
        self.is_saturated = is_longer || self.is_saturated && !self.is_growing;
    }

    /// Sets the rate and the limit. The rate rises at once and falls slowly: one slow window does
    /// not make it useless. It does fall while nothing is answered in time, because then the engine
    /// works for requests whose callers have gone.
    fn estimate(&mut self, window: &Measured, is_crowded: bool) {
        let measured = u64::from(window.answers) * 1_000_000 / window.lasted.max(1);
        let (measured, before) = (u32::try_from(measured).unwrap_or(u32::MAX), self.limit);
        // A version without requests at times answers at least as many as it was asked for, so the
        // estimate may rise then, but not fall.
        if window.always > 0 || measured > self.rate {
            self.rate = measured.max(self.rate - self.rate.saturating_sub(measured) / 4).max(1);
        }
        self.set_limit();
        if self.is_growing {
            self.limit = self.limit.max(before.saturating_mul(GROWTH));
        }
        // The rate falls if the engine becomes slower, and the usual duration must follow before
        // the limit does: otherwise a smaller limit would lower the rate, and the rate the limit.
        if let Some((_, limit)) = self.tried.filter(|_| is_crowded) {
            self.limit = self.limit.max(limit - limit / 4);
        }
    }

    fn set_limit(&mut self) {
        let working = u64::from(self.rate) * self.usual * READY.0 / READY.1 / 1_000_000;
        self.limit = u32::try_from(working).unwrap_or(u32::MAX).max(LEAST);
    }

    /// True if the usual duration is to be measured again.
    fn is_due(&self, now: u64) -> bool {
        // An engine that is not saturated has no queue that could hide the usual duration.
        let Some((at, limit)) = self.tried else { return self.is_saturated };
        let passed = now.saturating_sub(at);
        let has_changed =
            self.limit > limit * 2 || self.limit <= limit - limit / 4 && limit > LEAST;
        self.is_falling
            || passed >= BETWEEN
            || has_changed && self.is_saturated && passed >= BETWEEN_CHANGES.max(self.usual * 10)
    }

    /// The usual duration of a version that is not crowded, after a window with this mean. A window
    /// without waits sets it; it rises by a tenth at most in each generation.
    fn usual_in_calm(&mut self, now: u64, mean: u64) {
        let least = self.least.map_or(mean, |least| least.min(mean));
        self.least = Some(least);
        if now.saturating_sub(self.generation) >= GENERATION {
            (self.generation, self.least) = (now, None);
            self.usual = least.min(self.usual + self.usual / 10);
        }
        self.usual = self.usual.min(mean);
    }

    /// True if the trial measures a request that begins now.
    pub(super) fn choose(&mut self) -> bool {
        let Some(Trial { left: Some(left @ 1..), chosen, .. }) = &mut self.trial else {
            return false;
        };
        *left -= 1;
        *chosen += 1;
        true
    }

    /// Takes the end of a request during a trial, after which `in_flight` are in progress.
    /// `chosen`: the trial measures it, with the duration of its answer. Returns true if the trial is
    /// over.
    pub(super) fn ended(&mut self, now: u64, in_flight: u32, chosen: Option<Option<u64>>) -> bool {
        let (few, (_, longest)) = (self.tried_with(), self.window());
        let Some(trial) = &mut self.trial else { return false };
        if let Some(answer) = chosen {
            trial.ended += 1;
            trial.answers += u32::from(answer.is_some());
            trial.took += answer.unwrap_or_default();
        }
        if trial.left.is_none() && in_flight <= few {
            trial.left = Some(SAMPLES);
        }
        let is_over = trial.left == Some(0) && trial.ended == trial.chosen;
        if !is_over && now.saturating_sub(trial.began) < longest * 2 {
            return false;
        }
        let Trial { answers, took, .. } = *trial;
        (self.trial, self.has_tried) = (None, true);
        let before = self.usual;
        if answers >= SAMPLES / 2 {
            self.usual = (took / u64::from(answers)).max(1);
        }
        self.is_falling = self.usual < before - before / 20 && self.limit > LEAST;
        self.set_limit();
        self.tried = Some((now, self.limit));
        self.crowded_until = now + CROWDED;
        true
    }
}
