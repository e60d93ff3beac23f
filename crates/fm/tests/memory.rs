//! Reading a model takes at most twice the memory that the model keeps.

mod support;

use outrigger_fm::{Error, Kind, Limits, Model, Reading};
use outrigger_testkit::allocator::{self, Reporting, measured};
use support::{Content, line, trees};

#[global_allocator]
static MEASURING: Reporting = allocator::MEASURING;

/// The peak of the memory that reading takes, and the memory that is held afterwards.
fn read(content: &Content, reading: &Reading<'_>) -> (usize, Result<(Model, usize), Error>) {
    let (model, memory) = measured(|| content.read(reading));
    (memory.peak, model.map(|model| (model, memory.held)))
}

/// A model with `features` features, beside those of the leaves of `count` trees.
fn content(kind: Kind, factors: usize, features: u64, count: usize) -> Content {
    let (classes, per_number) = if kind == Kind::Softmax { (3, 3) } else { (1, 1) };
    let values = |id: u64, factors: usize| -> Vec<f32> {
        (0..classes * per_number * (1 + factors)).map(|at| (id + at as u64) as f32 + 1.5).collect()
    };
    let lines = (0..features + 4 * count as u64).map(|id| line(id, &values(id, factors)));
    let fm = line("bias", &values(0, 0)) + &lines.collect::<String>();
    let pairs = |tree| (3..7).map(move |leaf| format!(" {leaf}:{}", 4 * tree + leaf - 3));
    let mapping = (0..count).map(|tree| format!("{tree}{}\n", pairs(tree).collect::<String>()));
    Content {
        trees: trees(&vec![[(1, 0.5, true); 3]; count], 3),
        fm: fm.into_bytes(),
        leaf_mapping: mapping.collect::<String>().into_bytes(),
    }
}

#[test]
fn the_peak_is_at_most_twice_the_model() {
    for (kind, factors, features, trees) in [
        (Kind::Binary, 8, 70_000, 100),
        (Kind::Binary, 0, 140_000, 10),
        (Kind::Softmax, 5, 40_000, 10),
        (Kind::Binary, 3, 10, 5_000),
    ] {
        let content = content(kind, factors, features, trees);
        let (peak, model) = read(&content, &Reading::new(kind));
        let (model, held) = model.expect("a model");
        let name = format!("{kind:?} with {factors} factors");
        assert!(peak <= 2 * held + Limits::OVERHEAD as usize, "{name}: {peak} for {held} bytes");
        let memory = model.memory();
        assert!(memory.abs_diff(held) <= held / 100 + 64, "{name}: {memory} of {held} bytes");
        drop(model);
        // XGBoost Serving keeps the weights of every softmax model that it unloads.
        let ((), unloaded) = measured(|| drop(content.read(&Reading::new(kind)).expect("a model")));
        assert_eq!(unloaded.held, 0, "{name}: bytes that are left of a model");
        // Half of the memory that is needed is not enough, and no more than it is taken.
        let limit = peak / 2;
        let limits = Limits { memory: limit as u64, ..Limits::default() };
        let (peak, refused) = read(&content, &Reading { limits, ..Reading::new(kind) });
        assert!(matches!(refused, Err(Error::Memory { .. })), "{name}: {refused:?}");
        assert!(peak <= limit + 4096, "{name}: {peak} bytes of {limit}");
    }
}
