//! Retries with exponential backoff.

use std::time::Duration;

use crate::{Error, config::Retries, metrics};

/// Counts the attempts of one operation and spaces them.
#[derive(Debug)]
pub(crate) struct Backoff<'a> {
    retries: &'a Retries,
    made: u32,
}

impl<'a> Backoff<'a> {
    pub(crate) fn new(retries: &'a Retries) -> Self {
        Self { retries, made: 0 }
    }

    /// Waits before the next attempt. Returns `error` if there is none: the error is not transient,
    /// the attempts are used up, or the registry asks for a longer delay than allowed.
    pub(crate) async fn wait(&mut self, error: Error) -> Result<(), Error> {
        self.made += 1;
        if !error.is_transient() || self.made >= self.retries.attempts.max(1) {
            return Err(error);
        }
        let asked = error.retry_after().unwrap_or_default();
        if asked > self.retries.max_retry_after {
            return Err(error);
        }
        let delay = self.delay(rand::random_range(0.5..=1.0)).max(asked);
        tracing::debug!(error = %error, attempt = self.made, ?delay, "registry call failed, trying again");
        metrics::retried();
        tokio::time::sleep(delay).await;
        Ok(())
    }

    fn delay(&self, jitter: f64) -> Duration {
        let doublings = self.made.saturating_sub(1).min(20);
        let delay = self.retries.first_delay.saturating_mul(1 << doublings);
        delay.min(self.retries.max_delay).mul_f64(jitter)
    }
}

/// Runs `operation` until it succeeds, fails for good, or the attempts are used up.
pub(crate) async fn retrying<T, F>(retries: &Retries, operation: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut backoff = Backoff::new(retries);
    loop {
        match operation().await {
            Ok(value) => return Ok(value),
            Err(error) => backoff.wait(error).await?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retries(attempts: u32) -> Retries {
        Retries {
            attempts,
            first_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(5),
            max_retry_after: Duration::from_secs(60),
        }
    }

    fn unavailable(retry_after: Option<Duration>) -> Error {
        let (registry, detail) = ("registry.example".to_owned(), "503".to_owned());
        Error::Unavailable { registry, detail, retry_after, source: None }
    }

    #[test]
    fn delays_double_up_to_the_limit_and_vary() {
        let retries = retries(9);
        let delay = |made, jitter| Backoff { retries: &retries, made }.delay(jitter).as_millis();
        assert_eq!([1, 2, 3, 4, 40].map(|made| delay(made, 1.0)), [1000, 2000, 4000, 5000, 5000]);
        assert_eq!(delay(2, 0.5), 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_are_bounded() {
        let tries = std::cell::Cell::new(0);
        let fail = || async {
            tries.set(tries.get() + 1);
            Err::<(), _>(unavailable(None))
        };
        let error = retrying(&retries(3), fail).await.unwrap_err();
        assert!(error.is_transient());
        assert_eq!(tries.get(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn final_errors_and_long_delays_are_not_retried() {
        let retries = retries(3);
        let denied = Error::denied("registry.example", "403");
        assert!(Backoff::new(&retries).wait(denied).await.is_err());
        let long = unavailable(Some(Duration::from_secs(61)));
        assert!(Backoff::new(&retries).wait(long).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_is_respected() {
        let start = tokio::time::Instant::now();
        let asked = Duration::from_secs(50);
        Backoff::new(&retries(2)).wait(unavailable(Some(asked))).await.unwrap();
        assert!(start.elapsed() >= asked);
    }
}
