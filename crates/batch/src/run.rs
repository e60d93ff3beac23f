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
    parts::{Layout, limits, outputs, settings, threads},
    steward::Steward,
};
use crate::{
    Error, Manifest, Watch,
    conductor::Conductor,
    control::Control,
    hosts::Hosts,
    input::Input,
    job::Job,
    lease::Leases,
    memory::Memory,
    plan::Plan,
    prepare::prepare,
    readers::{self, Event, Readers, Sizes},
    retry::retried,
    store::Store,
    work::Work,
};

/// The most bytes of a message, as a share of the memory.
const MESSAGE_SHARE: u64 = 4;

/// Runs a job, or goes on with it, in `store`. Returns the manifest, which names the output. `watch`
/// gets the progress each second.
///
/// # Errors
/// The job cannot run, or has stopped; what is committed stays.
///
/// # Panics
/// Outside of a Tokio runtime.
pub async fn run(job: Job, store: Store, watch: Watch) -> Result<Manifest, Error> {
    job.check()?;
    let max_message = usize::try_from(job.memory.0 / MESSAGE_SHARE).unwrap_or(usize::MAX);
    let mut hosts = Hosts::new(&job, max_message);
    let (job, input) = blocking(move || input(job)).await?;
    let plan = match Plan::read(&store)? {
        Some(plan) => {
            plan.check(&job, &input.files)?;
            plan
        }
        None => {
            check_has_no_other(&store)?;
            let numbers = hosts.set(None)?;
            let files = input.files.clone();
            let plan = tokio::select! {
                plan = prepare(&job, input, (&hosts, &numbers)) => plan?,
                () = watch.interrupted() => return Err(Error::Interrupted),
            };
            // Another worker may have been faster.
            let plan = plan.write(&store)?;
            plan.check(&job, &files)?;
            plan
        }
    };
    if let Some(manifest) = Manifest::read(&store)? {
        return Ok(manifest);
    }
    let mut worker = Worker::start(&job, hosts, (&plan, &store), watch.clone())?;
    let result = tokio::select! {
        result = worker.work() => result,
        () = watch.interrupted() => Err(Error::Interrupted),
    };
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

/// The job with its input, which is that of its patterns or of another job's dead letters.
fn input(job: Job) -> Result<(Job, Input), Error> {
    match job.retry.clone() {
        Some(first) => retried(job, &Store::local(first)),
        None => Input::find(&job.input.0).map(|input| (job, input)),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    spawn_blocking(work).await.map_err(Error::failed)?
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
    control: Control,
}

impl Worker {
    fn start(
        job: &Job,
        hosts: Hosts,
        (plan, store): (&Plan, &Store),
        watch: Watch,
    ) -> Result<Self, Error> {
        let name = format!("{:08x}", rand::random::<u32>());
        let layout = Layout::of(job.memory.0);
        let (batch_sender, batches) = mpsc::channel(layout.readers);
        let (event_sender, events) = mpsc::unbounded_channel();
        let (work, before) = Work::new(plan, store)?;
        let work = work.beginning_with(job.worker);
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
            leases: Arc::new(Leases::new(store.clone(), &name)),
            outputs: Arc::new(outputs(plan, store)?),
            batches: batch_sender,
            events: event_sender,
        });
        let scoring = Arc::new(plan.scoring.clone());
        let settings = settings(job);
        let mut conductor = Conductor::new((scoring, sizes), (hosts, job.timeout.0), settings);
        conductor.set_hosts(None)?;
        let steward = Arc::new(Steward::new(&name, (plan, before), &readers, watch)?);
        let threads = threads(layout.readers, &readers, &steward)?;
        let (batch_size, concurrency) = (job.batch_size, job.concurrency);
        let settings = Live { batch_size, concurrency, control: Control::default() };
        let (reading, open) = (layout.readers, 0);
        Ok(Self { conductor, readers, steward, batches, events, threads, reading, open, settings })
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
                _ = second.tick() => {
                    self.conductor.review_hosts()?;
                    self.steward.report(self.conductor.progress());
                }
            }
        }
        self.steward.report(self.conductor.progress());
        Ok(())
    }

    fn event(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Batch(batch) => self.conductor.add(*batch),
            Event::Begun => self.open += 1,
            Event::Ended(chunk, ended) => {
                self.open -= 1;
                ended?;
                self.readers.leases.release(chunk.number)?;
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
        let Live { batch_size, concurrency, control: before } = &mut self.settings;
        if control == *before {
            return Ok(());
        }
        let rows = control.batch_size.unwrap_or(*batch_size);
        self.readers.sizes.batch_rows.store(rows, Relaxed);
        let limits = limits(control.concurrency.unwrap_or(*concurrency));
        let has_new_hosts = control.hosts != before.hosts;
        let dispatcher = self.conductor.dispatcher();
        dispatcher.set_limits(limits);
        match control.paused {
            true => dispatcher.pause(),
            false => dispatcher.resume(),
        }
        if has_new_hosts {
            self.conductor.set_hosts(control.hosts.as_deref())?;
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
