//! Progress bars.

use std::{convert::Infallible, io::IsTerminal as _, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

/// The time between two updates.
const INTERVAL: Duration = Duration::from_millis(100);

/// A bar of this form, which is hidden if standard error is not a terminal.
pub(crate) fn bar(template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).expect("a valid template");
    ProgressBar::new_spinner().with_style(style)
}

/// Waits for `work` and updates the bar meanwhile.
pub(crate) async fn follow<T>(
    bar: &ProgressBar,
    update: impl Fn(&ProgressBar),
    work: impl Future<Output = T>,
) -> T {
    let done = tokio::select! {
        biased;
        done = work => done,
        never = keep_updating(bar, update) => match never {},
    };
    bar.finish_and_clear();
    done
}

async fn keep_updating(bar: &ProgressBar, update: impl Fn(&ProgressBar)) -> Infallible {
    let mut interval = tokio::time::interval(INTERVAL);
    loop {
        interval.tick().await;
        update(bar);
        bar.tick();
    }
}
