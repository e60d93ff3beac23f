//! A run of a job, from its settings to the manifest.

mod alive;
mod compaction;
mod found;
mod others;
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
    compaction::compact_once,
    found::{find, hosts, input, resume},
    parts::{Begun, Layout, Start, begin, check_dead, limits, settings, threads},
    steward::Steward,
};
use crate::{
    Environment, Error, Manifest, Progress, Watch,
    conductor::Conductor,
    control::Control,
    discovery::{Discovery, Finding},
    hosts::Hosts,
    job::{Job, Quota},
    lease::Leases,
    memory::Memory,
    plan::Plan,
    prepare::prepare,
    readers::{self, Event, Readers, Sizes},
    store::Store,
};

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
    let manifest = run_job(environment, job, store.clone(), watch.clone()).await?;
    if let Some(compaction) = compaction {
        // The number after those of the chunks.
        let lease = manifest.chunks.len() as u64;
        compact_once(store, compaction, (lease, &watch)).await?;
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
    let (job, input) = uninterrupted(&watch, blocking(move || input(job))).await?;
    let place = store.clone();
    let planned = match uninterrupted(&watch, blocking(move || find(&place))).await? {
        Some((plan, manifest)) => {
            plan.check(&job, &input.files)?;
            // A finished job needs no host. The worker that finished it may have been killed before it
            // had removed what the manifest does not name; no result depends on that.
            if let Some(manifest) = manifest {
                let place = store.clone();
                return blocking(move || {
                    let _ = manifest.sweep(&place);
                    Ok(manifest)
                })
                .await;
            }
            Some(plan)
        }
        None => None,
    };
    // The job's own hosts may be gone for good.
    let place = store.clone();
    let named = match planned {
        Some(_) => blocking(move || resume(&place)).await?.hosts,
        None => None,
    };
    let (mut hosts, names) = hosts(environment, &job, named.as_deref()).await?;
    let plan = match planned {
        Some(plan) => plan,
        None => {
            let numbers = hosts.set(&names.hosts())?;
            let files = input.files.clone();
            let memory = Memory::new(Layout::of(job.memory.0, store.buffer()).batches);
            let plan = prepare(&job, input, (&hosts, &numbers), memory);
            let plan = uninterrupted(&watch, plan).await?;
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
    let settings = job.clone();
    let begun = move || begin((&plan, &settings), &place).map(|begun| (plan, begun));
    let (plan, begun) = blocking(begun).await?;
    let start = match begun {
        Begun::Finished(manifest) => return Ok(manifest),
        Begun::Start(mut start) => {
            start.outputs.part = environment.periods.part;
            *start
        }
    };
    let mut worker = Worker::start(&job, (hosts, discovery), (&plan, start), watch.clone())?;
    worker.settings.control.hosts = named;
    let result = uninterrupted(&watch, worker.work()).await;
    match &result {
        Err(Error::Interrupted) => worker.drain(environment.periods.drain).await,
        // The rows may not be at fault: they are tried again.
        Err(Error::TooManyDead) => worker.readers.outputs.keeps_parts.store(false, Relaxed),
        _ => {}
    }
    // The last rows are in the history too, also of a job that has stopped.
    let steward = Arc::clone(&worker.steward);
    steward.report(worker.conductor.progress());
    if result.is_err() {
        // Nothing waits for a store that is away any longer.
        store.patience().end();
    }
    worker.stop().await;
    let output = store.clone();
    let finished = match result {
        Ok(()) => {
            // Other workers have found dead rows too.
            let finish = move || {
                check_dead(&job, &plan, &output)?;
                Manifest::write(&plan, &output)
            };
            blocking(finish).await
        }
        Err(error) => Err(error),
    };
    let manifest = match finished {
        // The worker that finishes a job removes what others still write.
        Err(Error::Failed(message)) => Manifest::read(&store)?.ok_or(Error::Failed(message))?,
        finished => finished?,
    };
    steward.finish();
    Ok(manifest)
}

/// The result of `work`, unless the run is interrupted before.
async fn uninterrupted<T>(
    watch: &Watch,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::select! {
        result = work => result,
        () = watch.interrupted() => Err(Error::Interrupted),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    spawn_blocking(work).await.map_err(Error::failed)?
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
    rows_per_second: Option<u32>,
    quota: Quota,
    control: Control,
}

impl Worker {
    fn start(
        job: &Job,
        (mut hosts, mut discovery): (Hosts, Discovery),
        (plan, start): (&Plan, Start),
        watch: Watch,
    ) -> Result<Self, Error> {
        let name = format!("{:08x}", rand::random::<u32>());
        let Start { outputs, work, before, dead, reference } = start;
        let work = work.beginning_with(job.worker);
        let layout = Layout::of(job.memory.0, outputs.store.buffer());
        let (batch_sender, batches) = mpsc::channel(layout.readers);
        let (event_sender, events) = mpsc::unbounded_channel();
        let sizes = Arc::new(Sizes {
            batch_rows: AtomicU32::new(job.batch_size),
            answer_bytes: AtomicU64::new(plan.answer_bytes),
            row_bytes: AtomicU64::new(plan.row_bytes),
        });
        let memory = Memory::with_reserve(layout.batches, layout.reserve(hosts.max_answer()));
        let readers = Arc::new(Readers {
            scoring: plan.scoring.clone(),
            suspects: plan.suspects.clone(),
            request: readers::request(&plan.scoring),
            sizes: Arc::clone(&sizes),
            memory: memory.clone(),
            places: Memory::new(layout.places),
            work: Mutex::new(work),
            leases: Arc::new(Leases::new(outputs.store.clone(), &name)),
            outputs: Arc::new(outputs),
            batches: batch_sender,
            events: event_sender,
        });
        let scoring = Arc::new(plan.scoring.clone());
        let settings = settings(job);
        hosts.set_ended(plan.suspects.iter().map(|suspect| suspect.host.as_str()));
        let mut conductor =
            Conductor::new((scoring, sizes, memory), (hosts, job.timeout.0), settings);
        if let Some(request) = reference {
            conductor.set_reference(request);
        }
        discovery.ask(conductor.set_hosts(&discovery.hosts())?);
        let periodic = (&*readers, discovery.periods.renewal);
        let steward = Arc::new(Steward::new(&name, (plan, before, dead), periodic, watch));
        let threads = threads(layout.readers, &readers, &steward)?;
        let (batch_size, concurrency) = (job.batch_size, job.concurrency);
        let (quota, control) = (job.quota(), Control::default());
        conductor.set_quota(quota);
        let rows_per_second = job.rows_per_second;
        let settings = Live { batch_size, concurrency, rows_per_second, quota, control };
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
                () = self.readers.memory.changed(), if self.conductor.is_held() => {}
                finding = self.discovery.next() => self.found(finding)?,
                _ = second.tick() => self.tick()?,
            }
        }
        self.check_stop()
    }

    /// Does the work of each second.
    fn tick(&mut self) -> Result<(), Error> {
        self.conductor.review_hosts()?;
        self.conductor.review_memory();
        let unresolved = self.discovery.problems.clone();
        let open_chunks = self.open as u64;
        self.steward.report(Progress { unresolved, open_chunks, ..self.conductor.progress() });
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
            Event::Invalid(rows) => self.conductor.dispatcher().refused(rows),
            Event::DeadElsewhere(rows) => self.conductor.dispatcher().set_dead_elsewhere(rows),
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
        let Live { batch_size, concurrency, rows_per_second, quota, control: before } =
            &self.settings;
        if control == *before {
            return Ok(());
        }
        let rows = control.batch_size.unwrap_or(*batch_size);
        self.readers.sizes.batch_rows.store(rows, Relaxed);
        let concurrency = control.concurrency.unwrap_or(*concurrency);
        let limits = limits(concurrency, control.rows_per_second.or(*rows_per_second));
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

    /// Waits for the answers to the requests in flight, and at most so long: their rows need not be
    /// scored again.
    async fn drain(&mut self, most: Duration) {
        let end = Instant::now() + most;
        while !self.conductor.is_silent() {
            let taken = tokio::select! {
                biased;
                Some(event) = self.events.recv() => self.event(event),
                Some(ended) = self.conductor.answer() => self.conductor.ended(ended),
                () = sleep_until(end) => return,
            };
            // The job stops anyway.
            if taken.is_err() {
                return;
            }
        }
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
