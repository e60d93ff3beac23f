//! Reading a model of LightGBM or CatBoost takes at most twice the memory of its file.

#[path = "support/doubles.rs"]
mod doubles;

use outrigger_testkit::allocator::{self, Reporting, measured};
use outrigger_trees::{Limits, Model};

#[global_allocator]
static MEASURING: Reporting = allocator::MEASURING;

#[test]
fn the_peak_is_at_most_twice_the_file() {
    let files = [
        ("LightGBM", doubles::lightgbm(40, 11)),
        ("LightGBM", doubles::lightgbm(1, 15)),
        ("LightGBM", doubles::lightgbm_linear(40, 11, 1)),
        ("LightGBM", doubles::lightgbm_linear(1, 14, 5)),
        ("LightGBM", doubles::lightgbm_linear(200, 5, 20)),
        ("CatBoost", doubles::catboost(400, 10)),
        ("CatBoost", doubles::catboost(4, 16)),
        ("CatBoost", doubles::catboost_nested(2000, 1, 1)),
        ("CatBoost", doubles::catboost_nested(400, 40, 1)),
        ("CatBoost", doubles::catboost_nested(400, 40, 5)),
    ];
    for (library, file) in files {
        let size = file.len() as u64;
        let read = |limits: &Limits| measured(|| Model::read(&mut file.as_bytes(), size, limits));
        let (model, memory) = read(&Limits::default());
        let model = model.unwrap_or_else(|error| panic!("{library}: {error}"));
        assert!(memory.peak <= 2 * file.len(), "{library}: {} for {size}", memory.peak);
        let (stated, held) = (model.memory(), memory.held);
        assert!(stated.abs_diff(held) <= held / 100 + 256, "{library}: {stated} of {held} bytes");
        let limit = memory.peak / 2;
        let (refused, memory) = read(&Limits { memory: limit as u64, ..Limits::default() });
        assert!(refused.is_err(), "{library}");
        assert!(memory.peak <= limit + 4096, "{library}: {} of {limit}", memory.peak);
    }
}
