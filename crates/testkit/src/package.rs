//! Packages of the smallest model of any framework: a score is the sum of a treatment's features and
//! a bias.

mod gbdt_fm;
mod trees;

use std::{fs, io, path::Path};

use serde_json::json;

use crate::saved_model::Linear;

/// A package of such a model. Its features are those of [`Linear`] with one weight for the user and
/// two for a treatment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Package {
    /// The framework.
    pub framework: Framework,
    /// The bias.
    pub bias: u16,
    /// Packages that differ only in this number have different digests and equal scores.
    pub number: u16,
    /// The score that golden.jsonl expects of a treatment with the features 1 and 2.
    pub golden: Option<u16>,
}

/// The frameworks beside TensorFlow that have such packages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Framework {
    /// That of the crate `linear`.
    #[default]
    Linear,
    /// That of `testkit::remote`.
    Scripted,
    /// That of the crate `forest`. Features are multiples of a quarter from -8 to 8.
    Xgboost,
    /// As `Xgboost`, with a factorisation machine.
    GbdtFm,
}

impl Framework {
    /// The name in metadata.json.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Scripted => "scripted",
            Self::Xgboost => "xgboost",
            Self::GbdtFm => "gbdt_fm",
        }
    }

    /// The model's file in the directory that is called like the framework.
    fn file(self) -> &'static str {
        match self {
            Self::Linear => "linear.json",
            Self::Scripted => "scripted.json",
            Self::Xgboost | Self::GbdtFm => "model.json",
        }
    }
}

impl Package {
    /// The package's files by their paths under `/data`.
    pub fn files(&self) -> Vec<(String, String)> {
        let Self { framework, bias, number, golden } = *self;
        let weights = Linear { user: vec![0.0], treatment: vec![1.0, 1.0], bias: bias.into() };
        let mut metadata = match framework {
            Framework::Xgboost => trees::metadata(),
            Framework::GbdtFm => gbdt_fm::metadata(),
            Framework::Linear | Framework::Scripted => weights.model().metadata,
        };
        metadata["framework"] = framework.name().into();
        metadata["annotations"] = json!({"number": number.to_string()});
        let Linear { user, treatment, .. } = weights;
        let model = match framework {
            Framework::Linear => json!({"user": user, "treatment": treatment, "bias": bias}),
            Framework::Scripted => {
                json!({"user": user.len(), "treatment": treatment.len(), "bias": bias})
            }
            Framework::Xgboost | Framework::GbdtFm => trees::model(bias),
        };
        let mut files = vec![
            ("metadata.json".to_owned(), metadata.to_string()),
            (format!("{}/{}", framework.name(), framework.file()), model.to_string()),
        ];
        if framework == Framework::GbdtFm {
            files.push(("gbdt_fm/deploy.fm".to_owned(), gbdt_fm::machine(bias)));
            files.push(("gbdt_fm/deploy.leaf_mapping".to_owned(), gbdt_fm::leaf_mapping()));
        }
        files.extend(golden.map(|score| {
            let case = json!({
                "request": {"user": {}, "treatments": [{"features": {"t0": 1, "t1": 2}}]},
                "expected": {"scores": [score]},
            });
            ("golden.jsonl".to_owned(), case.to_string())
        }));
        files
    }

    /// Writes the package to `directory`, which mirrors `/data`.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        for (path, content) in self.files() {
            let path = directory.join(path);
            fs::create_dir_all(path.parent().unwrap_or(directory))?;
            fs::write(path, content)?;
        }
        Ok(())
    }
}
