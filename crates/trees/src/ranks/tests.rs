use proptest::prelude::*;

use super::*;

fn feature(thresholds: &[f64]) -> Feature {
    let mut splits: Vec<Split> = thresholds.iter().map(|threshold| (7, *threshold)).collect();
    splits.sort_unstable_by(|a, b| a.1.total_cmp(&b.1));
    Feature::new(&splits, &mut Budget::of(1 << 20)).expect("memory")
}

/// Asserts that the number for each value is on the side of each threshold on which LightGBM has the
/// value.
fn assert_sides(thresholds: &[f64], values: &[f64]) {
    let feature = feature(thresholds);
    for value in values {
        let number = feature.number(*value);
        assert_eq!(number.is_nan(), value.is_nan(), "{value:e}");
        let zeroed = if value.abs() <= f64::from(ZERO) { 0.0 } else { *value };
        for threshold in thresholds {
            let goes_left = number < feature.threshold(*threshold);
            assert_eq!(goes_left, zeroed <= *threshold, "{value:e} <= {threshold:e}");
        }
    }
}

/// A number and those beside it in f64 and in f32.
fn around(number: f64) -> [f64; 5] {
    let single = number as f32;
    let singles = [single.next_down(), single, single.next_up()].map(f64::from);
    [number, number.next_down(), number.next_up(), singles[0], singles[2]]
}

#[test]
fn every_number_is_on_the_side_of_every_threshold() {
    let zero = f64::from(ZERO);
    let hour: Vec<_> = (0..200).map(|at| 1.7e9 + 18.3 * f64::from(at)).collect();
    let lists: [&[f64]; 9] = [
        &[0.1, 0.3, -0.1, 2.5],
        &hour,
        &[0.0, -0.0, zero, -zero, 1e-320, -1e-320, 1e-40],
        &[0.0, 1.0, 1.0_f64.next_up(), 1.0_f64.next_up().next_up(), 1e9],
        &[f64::NAN],
        &[f64::NAN, 3.0],
        &[1e300, f64::MAX, f64::INFINITY, f64::NEG_INFINITY, -1e300, 5.0],
        &[f64::from(f32::MAX), 3.4028235677973366e38, -3.5e38],
        &[16_777_216.0, 16_777_217.0, 16_777_218.0],
    ];
    for thresholds in lists {
        let others = [0.0, -0.0, zero, -zero, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e308];
        let near: Vec<_> = thresholds.iter().flat_map(|it| around(*it)).chain(others).collect();
        assert_sides(thresholds, &near);
    }
}

#[test]
fn times_of_an_hour_are_compared_by_their_distance_and_neighbours_in_f32_by_rank() {
    let hour: Vec<_> = (0..200).map(|at| 1.7e9 + 18.3 * f64::from(at)).collect();
    let near = |thresholds| {
        let Feature { kind, origin, .. } = feature(thresholds);
        (kind == Kind::Near).then_some(origin)
    };
    assert_eq!(near(&[0.1, 0.3]), Some(0.0));
    assert_eq!(near(&hour), Some(hour[100]));
    assert_eq!(feature(&[-1.0, 0.0, 1e9, 1e9 + 1.0, 2e9, 2e9 + 1.0]).kind, Kind::Rank(1));
}

#[test]
fn zero_alone_has_the_rank_0_where_it_is_missing() {
    let feature = feature(&[0.0_f64.next_down(), 0.0, -0.5, 0.5, 3.0]);
    for (value, rank) in [(0.0, 0.0), (-0.0, 0.0), (1e-40, 0.0), (1e-3, 1.0), (-1e-3, -1.0)] {
        assert_eq!(feature.number(value), rank, "{value:e}");
    }
}

#[test]
fn a_category_keeps_its_whole_number() {
    let feature = Feature::of_categories(3);
    for (value, number) in
        [(7.0, 7.0), (7.9, 7.0), (-0.5, -0.0), (-1.0, -1.0), (16_777_215.9, 16_777_215.0)]
    {
        assert_eq!(feature.number(value), number, "{value}");
    }
    assert!(feature.number(f64::NAN).is_nan());
}

proptest! {
    #[test]
    fn any_number_is_on_the_side_of_any_threshold(
        thresholds in prop::collection::vec(any::<f64>(), 1..40),
        cluster in prop::collection::vec(-50_i32..50, 1..40),
        centre in -1e12_f64..1e12,
        values in prop::collection::vec(any::<f64>(), 0..20),
    ) {
        let cluster: Vec<_> = cluster.iter().map(|at| centre + f64::from(*at) * 1e-3).collect();
        for thresholds in [&thresholds, &cluster, &[&thresholds[..], &cluster].concat()] {
            let near = thresholds.iter().flat_map(|it| around(*it));
            let values: Vec<_> = near.chain(values.iter().copied()).collect();
            assert_sides(thresholds, &values);
        }
    }
}
