//! The kinds of engines, and the engines of a configuration.

use std::{collections::BTreeMap, fmt, sync::Arc};

use outrigger_budget::Budget;
use outrigger_core::{EngineId, Failure};
use outrigger_run::{Engine, Framework};
use outrigger_store::Store;
use outrigger_trace::Tracer;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use tokio::runtime::Handle;

use super::{
    Config,
    batcher::Batcher,
    layers::{Problem, join, typed},
};

/// The kind of the engine that the section `engine` configures.
pub(crate) const SHORT_FORM: &str = "tfserving";

/// An engine's entry in `engines`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The kind of engine.
    pub kind: String,
    /// The keys that the kind defines.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}

/// A kind of engines: a value of `kind` in `engines`.
#[derive(Clone)]
pub struct Kind {
    name: &'static str,
    frameworks: Vec<Framework>,
    /// Makes an engine in this process, for a kind that has no settings.
    in_process: Option<Arc<MakeInProcess>>,
    read: Arc<Read>,
}

type MakeInProcess = dyn Fn(&Budget) -> Arc<dyn Engine> + Send + Sync;
type Read = dyn Fn(&Settings<'_>) -> Result<Make, Vec<Problem>> + Send + Sync;

/// Makes an engine from settings that were checked.
pub type Make = Box<dyn FnOnce(&Context<'_>) -> Result<Arc<dyn Engine>, Failure>>;

/// The parts of the process that an engine may use.
pub struct Context<'a> {
    /// The engine's name.
    pub engine: &'a EngineId,
    /// The model store.
    pub store: &'a Store,
    /// The runtimes of the threads that serve predictions.
    pub serving: &'a [Handle],
    /// The budget of memory, for models that are loaded into this process.
    pub budget: &'a Budget,
    /// Records the engine's work as traces.
    pub tracer: &'a Tracer,
    /// The largest message to or from an engine in bytes.
    pub max_message: usize,
}

/// The settings of one engine: the keys of its entry but `kind` and `batcher`.
pub struct Settings<'a> {
    key: &'a str,
    values: &'a Map<String, Value>,
    /// The largest number of users in one run of a model: `server.max_users`.
    pub max_users: u32,
    /// True if the entry has the key `batcher`.
    pub has_batcher: bool,
}

/// The key of an engine's entry, of any kind, that adds batches.
const BATCHER: &str = "batcher";

/// The settings of a kind that has none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoSettings {}

impl Kind {
    /// The kind of an engine in this process, which `make` creates. It needs no entry in the
    /// configuration: without one, the engine has the kind's name.
    pub fn in_process(
        name: &'static str,
        frameworks: Vec<Framework>,
        make: impl Fn(&Budget) -> Arc<dyn Engine> + Send + Sync + 'static,
    ) -> Self {
        let make: Arc<MakeInProcess> = Arc::new(make);
        let in_process = Some(Arc::clone(&make));
        let read = move |settings: &Settings<'_>| {
            let NoSettings {} = settings.read()?;
            let make = Arc::clone(&make);
            Ok(Box::new(move |context: &Context<'_>| Ok(make(context.budget))) as Make)
        };
        Self { in_process, ..Self::configured(name, frameworks, read) }
    }

    /// A kind of engines that each have an entry in the configuration. `read` checks the settings
    /// of one and returns what makes the engine; it starts nothing.
    pub fn configured(
        name: &'static str,
        frameworks: Vec<Framework>,
        read: impl Fn(&Settings<'_>) -> Result<Make, Vec<Problem>> + Send + Sync + 'static,
    ) -> Self {
        Self { name, frameworks, in_process: None, read: Arc::new(read) }
    }
}

impl Settings<'_> {
    /// The settings as a type, which refuses keys that it does not know.
    ///
    /// # Errors
    /// A value that does not fit the type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Vec<Problem>> {
        typed(Value::Object(self.values.clone()))
            .map_err(|(inner, message)| vec![Problem::new(join(self.key, &inner), message)])
    }

    /// A problem with the value of `key`.
    pub fn problem(&self, key: &str, message: impl Into<String>) -> Problem {
        Problem::new(join(self.key, key), message)
    }
}

/// The kinds of engines that a server knows.
#[derive(Debug, Clone, Default)]
pub struct Kinds(Vec<Kind>);

impl Kinds {
    /// Adds a kind.
    pub fn with(mut self, kind: Kind) -> Self {
        self.0.push(kind);
        self
    }

    /// The frameworks of all kinds, each once.
    pub fn frameworks(&self) -> Vec<Framework> {
        let all = self.0.iter().flat_map(|kind| &kind.frameworks);
        all.map(|framework| (framework.name, *framework))
            .collect::<BTreeMap<_, _>>()
            .into_values()
            .collect()
    }

    /// Makes the engine in this process that runs models of `framework`, if there is one, for a
    /// command that runs one model: without a limit of memory.
    pub fn in_process(&self, framework: &str) -> Option<Arc<dyn Engine>> {
        let runs = |kind: &&Kind| kind.frameworks.iter().any(|it| it.name == framework);
        let make = self.0.iter().filter(runs).find_map(|kind| kind.in_process.as_ref())?;
        Some(make(&Budget::unlimited()))
    }

    /// The engines of `config`, and those in this process that need no entry, by name: what makes
    /// each, or the problems with its entry.
    pub(crate) fn engines(
        &self,
        config: &Config,
    ) -> BTreeMap<EngineId, Result<Make, Vec<Problem>>> {
        let (entries, max_users) = (config.entries(), config.server.max_users);
        let read = |key: &str, entry: &Entry| {
            let Entry { kind, settings } = entry;
            let mut values = settings.clone();
            let batcher = values.remove(BATCHER);
            let has_batcher = batcher.is_some();
            let settings = Settings { key, values: &values, max_users, has_batcher };
            let made = self.read(kind, &settings);
            match batcher.map(|value| Batcher::read_value(&join(key, BATCHER), value)) {
                None => made,
                Some(Ok(batcher)) => made.map(|make| batcher.around(make)),
                Some(Err(problems)) => {
                    Err(made.err().unwrap_or_default().into_iter().chain(problems).collect())
                }
            }
        };
        let made = entries.iter().map(|(key, id, entry)| (id.clone(), read(key, entry)));
        let mut engines: BTreeMap<_, _> = made.collect();
        let has_entry = |kind: &&Kind| entries.iter().any(|(.., entry)| entry.kind == kind.name);
        for kind in self.0.iter().filter(|kind| kind.in_process.is_some() && !has_entry(kind)) {
            let key = format!("engines.{}", kind.name);
            let taken = format!("the engine of kind {} in this process has this name", kind.name);
            let engine = match engines.contains_key(&EngineId::new(kind.name)) {
                true => Err(vec![Problem::new(key, taken)]),
                false => {
                    let (values, has_batcher) = (&Map::new(), false);
                    (kind.read)(&Settings { key: &key, values, max_users, has_batcher })
                }
            };
            engines.insert(EngineId::new(kind.name), engine);
        }
        engines
    }

    fn read(&self, kind: &str, settings: &Settings<'_>) -> Result<Make, Vec<Problem>> {
        let known = self.0.iter().find(|known| known.name == kind).ok_or_else(|| {
            let known: Vec<_> = self.0.iter().map(|kind| kind.name).collect();
            let message = format!("unknown kind {kind:?}; known kinds: {}", known.join(", "));
            vec![settings.problem("kind", message)]
        })?;
        (known.read)(settings)
    }
}

impl Config {
    /// The entry of each configured engine with the path of its key: the entries of `engines`, or
    /// the one made from `engine`.
    fn entries(&self) -> Vec<(String, EngineId, Entry)> {
        let Some(engines) = &self.engines else {
            let settings = serde_json::to_value(&self.engine).expect("settings are plain data");
            let settings = settings.as_object().cloned().unwrap_or_default();
            let entry = Entry { kind: SHORT_FORM.to_owned(), settings };
            return vec![("engine".to_owned(), EngineId::default(), entry)];
        };
        let entry =
            |(id, entry): (&EngineId, &Entry)| (format!("engines.{id}"), id.clone(), entry.clone());
        engines.iter().map(entry).collect()
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kind").field(&self.name).finish()
    }
}
