//! The machines of models and tags together with the engine's machine, in a world with faults:
//! random events; completions that come late, twice or never; delayed messages between the
//! machines; an engine that restarts and hangs; and a registry whose tags move. Every invariant is
//! checked after every event, and the world checks the files, and that the engine has one version at
//! a time of a model that is replaced. After the faults have ended, every
//! requested model must be served.

#[path = "machines/world.rs"]
mod world;

use proptest::prelude::*;
use world::{Step, World};

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_u8).prop_map(Step::AskTag),
        2 => (0..3_u8, 0..4_u8).prop_map(|(name, digest)| Step::AskDigest(name, digest)),
        1 => (0..3_u8).prop_map(Step::Load),
        1 => (0..3_u8, any::<bool>()).prop_map(|(name, delete)| Step::Unload(name, delete)),
        3 => (0..3_u8, 0..4_u8).prop_map(|(name, digest)| Step::MoveTag(name, digest)),
        3 => (0..3_u8, any::<bool>()).prop_map(|(name, follow)| Step::Follow(name, follow)),
        2 => (0..3_u8, 0..4_u8, any::<bool>())
            .prop_map(|(name, digest, pin)| Step::Pin(name, digest, pin)),
        1 => (1..200_u8, 0..200_u8).prop_map(|(idle, retain)| Step::Policy(idle, retain)),
        1 => (0..3_u8, any::<bool>()).prop_map(|(name, forget)| Step::ImageChanged(name, forget)),
        1 => (0..3_u8).prop_map(Step::EngineChanged),
        1 => (0..3_u8, any::<bool>(), any::<bool>())
            .prop_map(|(name, latest, number)| Step::List(name, latest, number)),
        1 => any::<bool>().prop_map(Step::Canaries),
        1 => (0..3_u8, any::<bool>()).prop_map(|(name, on)| Step::Rollover(name, on)),
        12 => any::<u8>().prop_map(Step::Complete),
        3 => any::<u8>().prop_map(Step::Fail),
        2 => any::<u8>().prop_map(Step::Repeat),
        10 => Just(Step::Deliver),
        8 => Just(Step::EngineWorks),
        1 => any::<u8>().prop_map(Step::LoadFails),
        1 => Just(Step::EngineRestarts),
        1 => Just(Step::EngineRestartsBefore),
        1 => Just(Step::EngineDies),
        1 => Just(Step::ReloadHangs),
        3 => (0..3_u8).prop_map(Step::Lease),
        3 => any::<u8>().prop_map(Step::Release),
        1 => any::<u8>().prop_map(Step::Evict),
        8 => (1..400_u16).prop_map(Step::Pass),
        1 => (1..4000_u16).prop_map(|tenths| Step::Pass(tenths.saturating_mul(10))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_iters: 4000, ..Default::default() })]

    #[test]
    fn whatever_happens_the_invariants_hold_and_calm_brings_everything_up(
        replaced in prop::collection::btree_set(0..3_u8, 0..=3),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut world = World::new(&replaced);
        for step in steps {
            world.step(step);
        }
        world.calm_down();
    }
}
