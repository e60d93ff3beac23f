//! The roles of a row's columns.

use outrigger_feature_table::Takes;
use outrigger_features::metadata::Entity;
use outrigger_tables::Names;

use crate::{features::Features, options::Reserved};

/// The column of a request's treatments, in the form of a request.
pub(crate) const TREATMENTS: &str = "treatments";

/// The positions of columns by their roles. Rows with the same names share it.
#[derive(Debug)]
pub(crate) struct Roles {
    pub(crate) names: Names,
    pub(crate) user: Option<usize>,
    pub(crate) treatment: Option<usize>,
    pub(crate) expected: Option<usize>,
    /// The column that may hold the treatments of a request.
    pub(crate) treatments: Option<usize>,
    /// The columns that may hold features of the user, by name: equal users have equal encodings,
    /// whatever the order of the columns.
    pub(crate) of_user: Vec<FeatureColumn>,
    /// The columns that may hold features of treatments.
    pub(crate) of_treatment: Vec<FeatureColumn>,
    /// The columns that are neither reserved nor features.
    pub(crate) ignored: Vec<usize>,
}

/// A column that may hold features of an entity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FeatureColumn {
    pub(crate) index: usize,
    /// The values of the feature with this name; `None` if the model has only features whose
    /// names begin with it and a dot.
    pub(crate) takes: Option<Takes>,
}

impl Roles {
    /// The roles of columns with these names. Cells may be objects if `has_objects` is true.
    pub(crate) fn new(
        names: &Names,
        reserved: &Reserved,
        (features, has_objects): (&Features, bool),
    ) -> Self {
        let position = |name: &str| names.iter().position(|column| **column == *name);
        let user = position(&reserved.user);
        let (treatment, expected) = (position(&reserved.treatment), position(&reserved.expected));
        let (mut of_user, mut of_treatment, mut ignored) = (Vec::new(), Vec::new(), Vec::new());
        for (index, name) in names.iter().enumerate() {
            if [user, treatment, expected].contains(&Some(index)) {
                continue;
            }
            let mut is_ignored = true;
            let roles = [(Entity::User, &mut of_user), (Entity::Treatment, &mut of_treatment)];
            for (entity, role) in roles {
                let takes = features.takes(entity, name);
                if takes.is_some() || has_objects && features.may_hold(entity, name) {
                    role.push(FeatureColumn { index, takes });
                    is_ignored = false;
                }
            }
            if is_ignored {
                ignored.push(index);
            }
        }
        of_user.sort_by_key(|column| &names[column.index]);
        let names = names.clone();
        let treatments = position(TREATMENTS);
        Self { user, treatment, expected, treatments, of_user, of_treatment, ignored, names }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use outrigger_feature_table::Type;
    use outrigger_features::Metadata;

    use super::*;

    #[test]
    fn a_column_may_hold_features_of_both_entities_or_of_none() {
        let metadata = br#"{"schema": "outrigger.dev/model/v1", "framework": "tensorflow",
            "inputs": [
              {"tensor": "u", "entity": "user", "dtype": "float32", "features": [
                {"name": "both", "required": true}, {"name": "home.zip", "required": true}]},
              {"tensor": "t", "entity": "treatment", "dtype": "float32", "features": [
                {"name": "both", "required": true}, {"name": "a", "required": true}]}],
            "outputs": [{"tensor": "s", "name": "score", "kind": "per_treatment"}]}"#;
        let features = Features::of(&Metadata::parse(metadata).expect("metadata"));
        let names = ["x", "user", "a", "home", "both"].map(Arc::<str>::from);
        let names: Names = Arc::from(names);
        let of_file = Roles::new(&names, &Reserved::default(), (&features, false));
        assert_eq!(of_file.ignored, [0, 3], "no cell of a file with a header is an object");
        let roles = Roles::new(&names, &Reserved::default(), (&features, true));
        assert_eq!((roles.user, roles.treatment, roles.expected), (Some(1), None, None));
        let number = Some(Takes { of: Type::Number, nan: false, single: true });
        let column = |index, takes| FeatureColumn { index, takes };
        assert_eq!(roles.of_user, [column(4, number), column(3, None)]);
        assert_eq!(roles.of_treatment, [column(2, number), column(4, number)]);
        assert_eq!(roles.ignored, [0]);
        let unknown = Features::unknown([]);
        let roles = Roles::new(&roles.names, &Reserved::default(), (&unknown, true));
        let indices =
            |columns: &[FeatureColumn]| columns.iter().map(|column| column.index).collect();
        let (of_user, of_treatment): (Vec<_>, Vec<_>) =
            (indices(&roles.of_user), indices(&roles.of_treatment));
        assert_eq!(of_treatment, [0, 2, 3, 4]);
        assert_eq!(of_user, [2, 4, 3, 0], "by name");
    }
}
