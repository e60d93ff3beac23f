//! The kinds of rows that are compared, dense and sparse.

/// A value of a row; None for an entry that a sparse row does not have.
pub(crate) type Entry = Option<f32>;

/// Sparse rows: the ids of the columns and their weights, one row after the other.
pub(crate) struct Entries {
    pub(crate) ids: Vec<u64>,
    pub(crate) weights: Vec<f32>,
    /// The place where each row begins, and the end.
    pub(crate) offsets: Vec<u32>,
}

impl Entries {
    /// The entries that whole rows of `width` columns have.
    pub(crate) fn of(rows: &[Entry], width: usize) -> Self {
        let mut entries = Self { ids: Vec::new(), weights: Vec::new(), offsets: vec![0] };
        for row in rows.chunks_exact(width) {
            for (id, value) in (0..).zip(row) {
                if let Some(weight) = value {
                    entries.ids.push(id);
                    entries.weights.push(*weight);
                }
            }
            entries.offsets.push(entries.ids.len() as u32);
        }
        entries
    }
}

/// The rows of a kind, made of dense ones: `dense`, which are the same; `missing`, with a tenth of
/// the values missing; or `sparse`, of which half of the entries are absent, and some are zeros or
/// missing values. None if there is no such kind.
pub(crate) fn of_kind(kind: &str, rows: &[f32]) -> Option<Vec<Entry>> {
    let entry: fn(f64, f32) -> Entry = match kind {
        "dense" => |_, value| Some(value),
        "missing" => |place, value| Some(if place < 0.1 { f32::NAN } else { value }),
        "sparse" => |place, value| match place {
            ..0.5 => None,
            ..0.55 => Some(f32::NAN),
            ..0.65 => Some(0.0),
            _ => Some(value),
        },
        _ => return None,
    };
    // Multiples of the golden ratio spread evenly between 0 and 1.
    let place = |at: usize| (at as f64 * 0.618_033_988_749_895).fract();
    Some(rows.iter().enumerate().map(|(at, value)| entry(place(at), *value)).collect())
}

/// Dense rows, in which what is absent is missing.
pub(crate) fn dense(rows: &[Entry]) -> Vec<f32> {
    rows.iter().map(|value| value.unwrap_or(f32::NAN)).collect()
}
