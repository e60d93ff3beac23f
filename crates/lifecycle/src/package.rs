//! The contents of a model package in the store.

use std::{fs::File, io::BufReader, path::PathBuf, sync::Arc};

use outrigger_budget::{Account, Charge};
use outrigger_core::{Digest, Failure, Interface, Reason};
use outrigger_features::{GoldenCase, GoldenCases, MAX_GOLDEN_CASE, Metadata, Plan};
use outrigger_run::{Framework, PackagedModel};
use outrigger_store::Tree;
use outrigger_trials::Profiled;

use crate::{blocking::blocking, error::store_failure};

/// The memory that JSON of this size takes when it is parsed: a number of one digit has two bytes as
/// text, and 32 when parsed.
pub(crate) fn parsed(json: u64) -> u64 {
    json * 16
}

/// The model of a package: its metadata, and the interface declared by its own files.
#[derive(Debug)]
pub struct ModelFiles {
    /// metadata.json.
    pub metadata: Metadata,
    /// The inputs and outputs of the signature that metadata.json names.
    pub interface: Interface,
    /// The model as its engine gets it.
    pub model: PackagedModel,
}

impl ModelFiles {
    /// Reads metadata.json and the model's interface. `framework` returns the reader for
    /// models of the framework that metadata.json names.
    ///
    /// # Errors
    /// If a file cannot be read or breaks a rule of its format, or the failure of
    /// `framework`.
    pub fn read(
        tree: &Tree,
        framework: impl FnOnce(&str) -> Result<Framework, Failure>,
    ) -> Result<Self, Failure> {
        let metadata = tree.metadata_bytes().map_err(|error| store_failure(&error))?;
        let metadata =
            Metadata::parse(&metadata).map_err(|error| Failure::because(error.reason(), &error))?;
        let framework = framework(&metadata.framework)?;
        let uplift = metadata.uplift.clone();
        let is_double = metadata.is_double();
        let model = PackagedModel { directory: tree.model_dir(), uplift, is_double };
        let interface = (framework.interface)(&model, &metadata.signature)?;
        Ok(Self { metadata, interface, model })
    }

    /// Builds the plan that packs requests for the model.
    ///
    /// # Errors
    /// If metadata.json contradicts the model's interface.
    pub fn plan(self) -> Result<Arc<Plan>, Failure> {
        let plan = Plan::load(self.metadata, &self.interface);
        plan.map(Arc::new).map_err(|error| Failure::because(error.reason(), &error))
    }
}

/// The golden cases of a package. They stay in their file, and are read one at a time.
#[derive(Debug, Clone)]
pub struct Golden {
    version: Digest,
    path: Option<PathBuf>,
    count: usize,
}

impl Golden {
    /// Reads all cases of a package once. Blocks.
    ///
    /// # Errors
    /// If the file cannot be read, or a case in it is malformed.
    pub fn check(tree: &Tree, plan: &Plan) -> Result<Self, Failure> {
        let mut golden = Self { version: *tree.digest(), path: tree.golden(), count: 0 };
        let mut cases = golden.open()?;
        while next(cases.as_mut(), plan)?.is_some() {
            golden.count += 1;
        }
        Ok(golden)
    }

    /// The number of cases; 0 if the package has none.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Opens the file, for a model of `plan`.
    pub(crate) async fn read(&self, plan: &Arc<Plan>) -> Result<Cases, Failure> {
        let golden = self.clone();
        let opened = blocking(move || golden.open().map(|file| (file, golden.size())));
        let (file, size) = opened.await?;
        let memory = parsed(size.min(MAX_GOLDEN_CASE as u64));
        Ok(Cases { version: self.version, file, plan: Arc::clone(plan), memory })
    }

    fn size(&self) -> u64 {
        let metadata = self.path.as_ref().and_then(|path| path.metadata().ok());
        metadata.map_or(0, |metadata| metadata.len())
    }

    fn open(&self) -> Result<Option<GoldenCases<BufReader<File>>>, Failure> {
        let open = |path: &PathBuf| {
            let file = File::open(path).map_err(|error| {
                Failure::new(Reason::Internal, format!("golden.jsonl cannot be opened: {error}"))
            })?;
            Ok(GoldenCases::new(BufReader::new(file)))
        };
        self.path.as_ref().map(open).transpose()
    }
}

/// The cases of an open file.
pub(crate) struct Cases {
    version: Digest,
    file: Option<GoldenCases<BufReader<File>>>,
    plan: Arc<Plan>,
    /// The largest memory that a case takes while it is parsed.
    memory: u64,
}

impl Cases {
    /// The next case; `None` at the end. Waits until `packages`, if given, has room for it.
    pub(crate) async fn next(
        &mut self,
        packages: Option<&Account>,
    ) -> Result<Option<GoldenCase>, Failure> {
        let _memory: Option<Charge> = match packages {
            Some(account) => Some(account.wait(self.version, self.memory).await?),
            None => None,
        };
        let (mut file, plan) = (self.file.take(), Arc::clone(&self.plan));
        let case;
        (self.file, case) = blocking(move || {
            let case = next(file.as_mut(), &plan);
            (file, case)
        })
        .await;
        case
    }
}

fn next(
    cases: Option<&mut GoldenCases<BufReader<File>>>,
    plan: &Plan,
) -> Result<Option<GoldenCase>, Failure> {
    let Some(cases) = cases else { return Ok(None) };
    cases.next(plan).map_err(|error| Failure::because(error.reason(), &error))
}

/// Reads the training profile of a package, if it has one.
///
/// # Errors
/// If the file cannot be read, or does not match the plan.
pub fn training_profile(tree: &Tree, plan: &Plan) -> Result<Option<Arc<Profiled>>, Failure> {
    let profile = tree.profile_bytes().map_err(|error| store_failure(&error))?;
    profile.map(|json| Profiled::read(&json, plan).map(Arc::new)).transpose()
}
