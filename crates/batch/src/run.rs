//! A run of a job, from its settings to the manifest.

mod parts;
mod steward;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::Duration,
};

use outrigger_dispatch::Stop;
use tokio::{
    sync::mpsc,
    task::spawn_blocking,
    time::{Instant, sleep_until},
};

use self::{
    parts::{Begun, Layout, Start, begin, limits, settings, threads},
    steward::Steward,
};
use crate::{
    Environment, Error, Manifest, Progress, Watch,
    compact::compact,
    conductor::Conductor,
    control::Control,
    discovery::{Discovery, Finding},
    hosts::Hosts,
    input::Input,
    job::{Compaction, Job, Quota},
    lease::Leases,
    memory::Memory,
    names::Names,
    plan::Plan,
    prepare::prepare,
    readers::{self, Event, Readers, Sizes},
    retry::retried,
    store::Store,
};

/// The most bytes of a message, as a share of the memory.
const MESSAGE_SHARE: u64 = 4;

/// Runs a job, or goes on with it, in `store`, and then its compaction if it has one. Returns the
/// manifest, which names the output. `watch` gets the progress each second.
///
/// # Errors
/// The job cannot run, or has stopped; what is committed stays.
///
/// # Panics
/// Outside of a Tokio runtime.
pub async fn run(job: Job, store: Store, watch: Watch) -> Result<Manifest, Error> {
    run_in(&Environment::default(), job, store, watch).await
}

/// As [`run()`], in other surroundings.
///
/// # Errors
/// As [`run()`].
///
/// # Panics
/// As [`run()`].
pub async fn run_in(
    environment: &Environment,
    job: Job,
    store: Store,
    watch: Watch,
) -> Result<Manifest, Error> {
    let compaction = job.compact.clone();
    let manifest = run_job(environment, job, store.clone(), watch).await?;
    if let Some(Compaction { to, file_size }) = compaction {
        blocking(move || compact(&store, &Store::at(&to)?, file_size.0)).await?;
    }
    Ok(manifest)
}

/// Runs a job until its output is finished.
async fn run_job(
    environment: &Environment,
    job: Job,
    store: Store,
    watch: Watch,
) -> Result<Manifest, Error> {
    job.check()?;
    let (job, input) = blocking(move || input(job)).await?;
    let place = store.clone();
    let planned = match blocking(move || find(&place)).await? {
        Some((plan, manifest)) => {
            plan.check(&job, &input.files)?;
            // A finished job needs no host.
            if let Some(manifest) = manifest {
                return Ok(manifest);
            }
            Some(plan)
        }
        None => None,
    };
    let (mut hosts, names) = hosts(environment, &job).await?;
    let plan = match planned {
        Some(plan) => plan,
        None => {
            let numbers = hosts.set(&names.hosts())?;
            let files = input.files.clone();
            let plan = tokio::select! {
                plan = prepare(&job, input, (&hosts, &numbers)) => plan?,
                () = watch.interrupted() => return Err(Error::Interrupted),
            };
            // Another worker may have been faster.
            let place = store.clone();
            let plan = blocking(move || plan.write(&place)).await?;
            plan.check(&job, &files)?;
            plan
        }
    };
    let scoring = &plan.scoring;
    let model = (scoring.model.as_str().into(), scoring.version().map(Into::into));
    let surroundings = (Arc::clone(&environment.resolver), environment.periods);
    let discovery = Discovery::new(surroundings, model, names);
    let place = store.clone();
    let (plan, begun) = blocking(move || begin(&plan, &place).map(|begun| (plan, begun))).await?;
    let start = match begun {
        Begun::Finished(manifest) => return Ok(manifest),
        Begun::Start(start) => *start,
    };
    let mut worker = Worker::start(&job, (hosts, discovery), (&plan, start), watch.clone())?;
    let result = tokio::select! {
        result = worker.work() => result,
        () = watch.interrupted() => Err(Error::Interrupted),
    };
    // The last rows are in the history too, also of a job that has stopped.
    worker.steward.report(worker.conductor.progress());
    if result.is_err() {
        // Nothing waits for a store that is away any longer.
        store.patience().end();
    }
    worker.stop().await;
    let output = store.clone();
    let finished = match result {
        Ok(()) => blocking(move || Manifest::write(&plan, &output)).await,
        Err(error) => Err(error),
    };
    match finished {
        // The worker that finishes a job removes what others still write.
        Err(Error::Failed(message)) => Manifest::read(&store)?.ok_or(Error::Failed(message)),
        finished => finished,
    }
}

/// The hosts of a job, its engines started and its names looked up. A name that has no address now is
/// looked up again later, unless no host is left.
async fn hosts(environment: &Environment, job: &Job) -> Result<(Hosts, Names), Error> {
    let max_message = usize::try_from(job.memory.0 / MESSAGE_SHARE).unwrap_or(usize::MAX);
    let engines = environment.engines(job).await?;
    let hosts = Hosts::new(job, engines, max_message);
    let names = Names::new(hosts.configured(None));
    let (names, problems) = names.looked_up(&*environment.resolver).await;
    match problems.is_empty() || !names.hosts().is_empty() {
        true => Ok((hosts, names)),
        false => Err(Error::failed(format!("no host has an address: {}", problems.join("; ")))),
    }
}

/// The job with its input, which is that of its patterns or of another job's dead letters.
fn input(job: Job) -> Result<(Job, Input), Error> {
    match job.retry.clone() {
        Some(first) => retried(job, &Store::at(&first)?),
        None => Input::find(&job.input.0, job.format).map(|input| (job.for_lines(), input)),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    spawn_blocking(work).await.map_err(Error::failed)?
}

/// The plan of the job in a store, and the manifest if it is finished. Blocks.
fn find(store: &Store) -> Result<Option<(Plan, Option<Manifest>)>, Error> {
    match Plan::read(store)? {
        Some(plan) => Ok(Some((plan, Manifest::read(store)?))),
        None => check_has_no_other(store).map(|()| None),
    }
}

/// Refuses a directory that has something else than a job.
fn check_has_no_other(store: &Store) -> Result<(), Error> {
    let root = store.root().display();
    match store.is_empty() {
        Ok(true) => Ok(()),
        // Another worker has begun the job since the plan was looked for.
        Ok(false) if Plan::read(store)?.is_some() => Ok(()),
        Ok(false) => Err(Error::usage(format!("output: {root} exists already and is not a job"))),
        Err(error) => Err(Error::usage(format!("output: {root}: {error}"))),
    }
}

/// One worker on a job: its threads, and the state of its run.
struct Worker {
    conductor: Conductor,
    discovery: Discovery,
    readers: Arc<Readers>,
    steward: Arc<Steward>,
    batches: mpsc::Receiver<Event>,
    events: mpsc::UnboundedReceiver<Event>,
    threads: Vec<JoinHandle<()>>,
    /// The readers that have not ended, and the chunks whose output has not.
    reading: usize,
    open: usize,
    settings: Live,
}

/// The settings of the job that may change, as the job has them.
struct Live {
    batch_size: u32,
    concurrency: u32,
    quota: Quota,
    control: Control,
}

impl Worker {
    fn start(
        job: &Job,
        (hosts, mut discovery): (Hosts, Discovery),
        (plan, start): (&Plan, Start),
        watch: Watch,
    ) -> Result<Self, Error> {
        let name = format!("{:08x}", rand::random::<u32>());
        let Start { outputs, work, before } = start;
        let work = work.beginning_with(job.worker);
        let layout = Layout::of(job.memory.0, outputs.store.buffer());
        let (batch_sender, batches) = mpsc::channel(layout.readers);
        let (event_sender, events) = mpsc::unbounded_channel();
        let sizes = Arc::new(Sizes {
            batch_rows: AtomicU32::new(job.batch_size),
            answer_bytes: AtomicU64::new(plan.answer_bytes),
            row_bytes: AtomicU64::new(0),
        });
        let readers = Arc::new(Readers {
            scoring: plan.scoring.clone(),
            request: readers::request(&plan.scoring),
            sizes: Arc::clone(&sizes),
            memory: Memory::new(layout.batches),
            places: Memory::new(layout.places),
            work: Mutex::new(work),
            leases: Arc::new(Leases::new(outputs.store.clone(), &name)),
            outputs: Arc::new(outputs),
            batches: batch_sender,
            events: event_sender,
        });
        let scoring = Arc::new(plan.scoring.clone());
        let settings = settings(job);
        let mut conductor = Conductor::new((scoring, sizes), (hosts, job.timeout.0), settings);
        discovery.ask(conductor.set_hosts(&discovery.hosts())?);
        let steward = Arc::new(Steward::new(&name, (plan, before), &readers, watch));
        let threads = threads(layout.readers, &readers, &steward)?;
        let (batch_size, concurrency) = (job.batch_size, job.concurrency);
        let (quota, control) = (job.quota(), Control::default());
        conductor.set_quota(quota);
        let settings = Live { batch_size, concurrency, quota, control };
        let (reading, open) = (layout.readers, 0);
        Ok(Self {
            conductor,
            discovery,
            readers,
            steward,
            batches,
            events,
            threads,
            reading,
            open,
            settings,
        })
    }

    /// Works until all chunks are committed.
    async fn work(&mut self) -> Result<(), Error> {
        let mut second = tokio::time::interval(Duration::from_secs(1));
        while self.reading > 0 || self.open > 0 {
            let wake = self.conductor.send();
            self.check_stop()?;
            let (has_room, is_silent) = (self.conductor.has_room(), self.conductor.is_silent());
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => self.event(event)?,
                Some(ended) = self.conductor.answer(), if !is_silent => self.conductor.ended(ended)?,
                Some(event) = self.batches.recv(), if has_room => self.event(event)?,
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
                finding = self.discovery.next() => self.found(finding)?,
                _ = second.tick() => self.tick()?,
            }
        }
        Ok(())
    }

    /// Does the work of each second.
    fn tick(&mut self) -> Result<(), Error> {
        self.conductor.review_hosts()?;
        let unresolved = self.discovery.problems.clone();
        self.steward.report(Progress { unresolved, ..self.conductor.progress() });
        let (ended, failed) = self.conductor.calls();
        self.discovery.calls(ended, failed);
        Ok(())
    }

    /// Takes news of the hosts into account.
    fn found(&mut self, finding: Finding) -> Result<(), Error> {
        match finding {
            Finding::Hosts(hosts) => self.discovery.ask(self.conductor.set_hosts(&hosts)?),
            Finding::Health(host, health) => self.conductor.set_health(host, health),
        }
        Ok(())
    }

    fn event(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Batch(batch) => self.conductor.add(*batch),
            Event::Begun => self.open += 1,
            Event::Ended(ended) => {
                self.open -= 1;
                ended?;
            }
            Event::Read(result) => {
                self.reading -= 1;
                result?;
            }
            Event::Control(control) => self.control(control)?,
        }
        Ok(())
    }

    /// Applies the settings of the control object.
    fn control(&mut self, control: Control) -> Result<(), Error> {
        if control.cancelled {
            return Err(Error::Cancelled);
        }
        let Live { batch_size, concurrency, quota, control: before } = &self.settings;
        if control == *before {
            return Ok(());
        }
        let rows = control.batch_size.unwrap_or(*batch_size);
        self.readers.sizes.batch_rows.store(rows, Relaxed);
        let limits = limits(control.concurrency.unwrap_or(*concurrency));
        let has_new_hosts = control.hosts != before.hosts;
        self.conductor.set_quota(control.quota(*quota));
        let dispatcher = self.conductor.dispatcher();
        dispatcher.set_limits(limits);
        match control.paused {
            true => dispatcher.pause(),
            false => dispatcher.resume(),
        }
        if has_new_hosts {
            self.discovery.configure(self.conductor.hosts.configured(control.hosts.as_deref()));
        }
        self.settings.control = control;
        Ok(())
    }

    fn check_stop(&mut self) -> Result<(), Error> {
        match self.conductor.dispatcher().stopped() {
            None => Ok(()),
            Some(Stop::MaxErrors) => Err(Error::TooManyDead),
            Some(Stop::NoSuccess) => {
                Err(Error::failed("the hosts answer, but every request has failed for a long time"))
            }
        }
    }

    /// Ends all threads, and gives the leases back.
    async fn stop(mut self) {
        self.readers.memory.close();
        self.readers.places.close();
        self.batches.close();
        let Self { readers, threads, mut events, conductor, mut open, .. } = self;
        // The batches that are not settled end the outputs of their chunks.
        drop((conductor, self.batches));
        let join = move || threads.into_iter().for_each(|thread| _ = thread.join());
        let _ = spawn_blocking(join).await;
        while let Ok(event) = events.try_recv() {
            match event {
                Event::Begun => open += 1,
                Event::Ended(..) => open -= 1,
                _ => {}
            }
        }
        while open > 0 {
            match events.recv().await {
                Some(Event::Ended(..)) => open -= 1,
                Some(_) => {}
                None => break,
            }
        }
        // A lease that cannot be given back expires.
        let _ = spawn_blocking(move || readers.leases.release_all()).await;
    }
}
