//! Batches of any calls.

use futures::future::BoxFuture;
use outrigger_core::Tensor;
use proptest::prelude::*;

use super::*;

/// A model whose output is its input, after a time. A negative number makes a run fail.
struct Echo(Duration);

impl Run for Echo {
    fn run(&self, mut call: Call) -> BoxFuture<'_, Result<Vec<Tensor>, RunError>> {
        Box::pin(async move {
            sleep(self.0).await;
            if values(&call.inputs[0]).iter().any(|value| *value < 0.0) {
                let (code, message) = ("InvalidArgument".to_owned(), "negative".to_owned());
                return Err(RunError::Failed { code, message });
            }
            Ok(vec![call.inputs.remove(0)])
        })
    }
}

/// One caller: the time of its arrival, its rows and treatments, and whether its call fails.
#[derive(Debug, Clone)]
struct Caller {
    arrives: Duration,
    rows: usize,
    treatments: usize,
    fails: bool,
}

impl Caller {
    /// The rows of its treatments: numbers that no other caller has.
    fn rows(&self, number: usize) -> Vec<f32> {
        #[allow(clippy::cast_precision_loss)]
        let mut rows: Vec<_> =
            (0..self.rows * self.treatments).map(|index| (number * 1000 + index) as f32).collect();
        if self.fails {
            rows[0] = -1.0;
        }
        rows
    }

    /// The part of a padded output that is its own.
    fn own(&self, output: &Tensor) -> Vec<f32> {
        let rows = values(output);
        let padded = rows.len() / self.rows;
        rows.chunks(padded).flat_map(|row| &row[..self.treatments]).copied().collect()
    }
}

fn callers() -> impl Strategy<Value = Vec<Caller>> {
    let caller = (0..30_u64, 1..4_usize, 1..6_usize, prop::bool::weighted(0.1));
    let caller = caller.prop_map(|(arrives, rows, treatments, fails)| Caller {
        arrives: Duration::from_millis(arrives),
        rows,
        treatments,
        fails,
    });
    prop::collection::vec(caller, 1..40)
}

fn any_settings() -> impl Strategy<Value = Settings> {
    (1..12_usize, 0..10_u64, 1..3_usize).prop_map(|(max_rows, delay, max_in_flight)| Settings {
        max_rows,
        max_delay: Duration::from_millis(delay),
        max_in_flight,
        ..settings()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Each caller gets its own rows, one that fails does so alone, and all get an answer long before
    /// their deadlines.
    #[test]
    fn every_caller_gets_its_own_answer(
        callers in callers(),
        settings in any_settings(),
        runs_for in 0..20_u64,
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            let batcher = padding(&Arc::new(Echo(Duration::from_millis(runs_for))), settings);
            let batcher = &batcher;
            let run = |(number, caller): (usize, &Caller)| {
                let caller = caller.clone();
                async move {
                    sleep(caller.arrives).await;
                    let rows = caller.rows(number);
                    let shape = [caller.rows, caller.treatments, 1]
                        .map(|size| i64::try_from(size).expect("small"));
                    let result = batcher.run(call(vec![numbers("x", &shape, &rows)])).await;
                    (result, rows, caller)
                }
            };
            let start = Instant::now();
            for (result, rows, caller) in join_all(callers.iter().enumerate().map(run)).await {
                match result {
                    Ok(outputs) => {
                        prop_assert!(!caller.fails);
                        prop_assert_eq!(caller.own(&outputs[0]), rows);
                    }
                    Err(error) => prop_assert!(caller.fails, "{}", error),
                }
            }
            // At most two runs for each call, one after the other, and their delays.
            let most = 2 * callers.len() as u64 * (runs_for + 10) + 100;
            prop_assert!(start.elapsed() <= Duration::from_millis(most));
            Ok(())
        })?;
    }
}
