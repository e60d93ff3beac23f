//! Calls of many rows through the engine.

use std::{error::Error, fs, sync::Arc, time::Duration};

use futures::future::try_join_all;
use outrigger_budget::Budget;
use outrigger_core::{
    Digest, EngineId, ModelName, Reason, ServableId, ServableName, Version, Versions,
    engine::{FromEngine, ToEngine},
};
use outrigger_run::{
    Call, Clock, Engine as _, Event, PackagedModel, RowLayout, RunError, Start, Target,
    local::tensor,
};
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

const WAIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn calls_of_many_rows_have_the_bits_of_the_whole() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let model = include_bytes!("../../trees/tests/example.json");
    fs::write(directory.path().join("model.json"), model)?;
    let whole = outrigger_forest::load(&PackagedModel::from(directory.path()))?;

    let engine = Arc::new(outrigger_forest::engine(&Budget::default()));
    let (events, mut reports) = mpsc::channel(16);
    let (versions, clock) = (Versions::after(Version(1)), Clock::start());
    let start = Start { engine: EngineId::default(), clock, versions, events };
    let _task = JoinSet::from_iter([Arc::clone(&engine).run(start)]);
    let id = ServableId { name: ServableName::of(&"m".parse::<ModelName>()?), version: Version(1) };
    engine
        .publish(id.clone(), Digest::of(b"m"), directory.path().into())
        .await
        .map_err(|failed| format!("{failed:?}"))?;
    engine.send(ToEngine::Add(id.clone()));
    let up = Event::Version(FromEngine::Up(id.clone()));
    while reports.recv().await.ok_or("the engine ended")?.1 != up {}

    let (inputs, outputs) = (vec!["features".into()], vec!["margin".into(), "leaf".into()]);
    let bound = engine.bind(Target {
        id,
        signature: "serving_default".into(),
        inputs,
        outputs: outputs.clone(),
        layout: RowLayout::Joined,
    });
    for rows in [1, 63, 128, 10_001] {
        let values: Vec<_> = (0..2 * rows).map(|at| (at % 7) as f32 / 8.0).collect();
        let inputs = vec![tensor("features".into(), vec![rows, 2], &values)];
        let deadline = Instant::now() + WAIT;
        let call = Call::new(inputs, outputs.clone(), deadline);
        let expected = whole.run(call.clone())?;
        assert_eq!(expected[0].shape, [rows]);
        // The calls share the threads.
        let found = try_join_all((0..4).map(|_| bound.run(call.clone()))).await?;
        assert!(found.iter().all(|outputs| *outputs == expected), "{rows} rows");
    }

    // The arguments of a call that is not whole rows are reported as by a run of the whole.
    let inputs = vec![tensor("features".into(), vec![500, 3], &[0.0; 1500])];
    let call = Call::new(inputs, outputs, Instant::now() + WAIT);
    let refused = bound.run(call).await;
    let is_malformed = |reason: &Reason| *reason == Reason::RequestMalformed;
    assert!(matches!(&refused, Err(RunError::Refused { reason, .. }) if is_malformed(reason)));
    Ok(())
}
