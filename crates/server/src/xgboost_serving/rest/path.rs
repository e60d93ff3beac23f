//! Paths: `/v1/models/NAME[/versions/NUMBER][:VERB]`, of which the fixed parts may be in any case.

use outrigger_proto::tensorflow::serving::{ModelSpec, model_spec::VersionChoice};
use outrigger_xgboost_serving::Platform;

use super::super::version::number;

/// The prefix of all paths.
pub(super) const MODELS: &str = "/v1/models/";
const VERSIONS: &str = "/versions/";

/// A path that exists.
#[derive(Debug, PartialEq)]
pub(super) struct Path {
    pub(super) spec: ModelSpec,
    /// The platform that a prediction asks for; `None` for the states of versions.
    pub(super) verb: Option<Platform>,
}

impl Path {
    /// Reads a path; `None` if it does not exist.
    pub(super) fn read(path: &str) -> Option<Self> {
        let (prefix, rest) = path.split_at_checked(MODELS.len())?;
        if !prefix.eq_ignore_ascii_case(MODELS) {
            return None;
        }
        let (model, verb) = match rest.split_once(':') {
            Some((model, verb)) => (model, Some(platform(verb)?)),
            // XGBoost Serving has no metadata of models.
            None if rest.to_ascii_lowercase().ends_with("/metadata") => return None,
            None => (rest, None),
        };
        let (name, version_choice) = match model.to_ascii_lowercase().rfind(VERSIONS) {
            Some(at) => {
                let number = number(&model[at + VERSIONS.len()..])?;
                (&model[..at], Some(VersionChoice::Version(number)))
            }
            None => (model, None),
        };
        let name = name.to_owned();
        Some(Self { spec: ModelSpec { name, version_choice, ..ModelSpec::default() }, verb })
    }
}

fn platform(verb: &str) -> Option<Platform> {
    match &*verb.to_ascii_lowercase() {
        "predict" => Some(Platform::Xgboost),
        "predict_alphafm" => Some(Platform::Alphafm),
        "predict_softmax" => Some(Platform::AlphafmSoftmax),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_a_model_a_version_and_a_verb() {
        let path = |name: &str, version: Option<i64>, verb| {
            let version_choice = version.map(VersionChoice::Version);
            let spec = ModelSpec { name: name.into(), version_choice, ..ModelSpec::default() };
            Some(Path { spec, verb })
        };
        for (text, expected) in [
            ("/v1/models/ads", path("ads", None, None)),
            ("/v1/models/ads/trees/versions/7", path("ads/trees", Some(7), None)),
            ("/v1/models/ads:predict", path("ads", None, Some(Platform::Xgboost))),
            ("/V1/Models/ads:Predict_AlphaFM", path("ads", None, Some(Platform::Alphafm))),
            (
                "/v1/models/ads/Versions/0:predict_softmax",
                path("ads", Some(0), Some(Platform::AlphafmSoftmax)),
            ),
            ("/v1/models/ads:classify", None),
            ("/v1/models/ads/metadata", None),
            ("/v1/models/ads/versions/7/Metadata", None),
            ("/v1/models/ads/versions/-7", None),
            ("/v1/models/ads/versions/07", None),
            ("/v1/models/ads/versions/99999999999999999999", None),
            ("/v1/modelé/ads", None),
            ("/v1/models", None),
            ("/", None),
        ] {
            assert_eq!(Path::read(text), expected, "{text}");
        }
    }
}
