use std::sync::{
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    mpsc,
};

use rustix::process::setpriority_process;

use super::*;

/// Work that counts its parts, and reports its end when it is dropped.
#[derive(Default)]
struct Counted {
    runs: AtomicUsize,
    over: AtomicBool,
    end: Option<mpsc::Sender<usize>>,
}

impl Counted {
    fn reporting() -> (Self, mpsc::Receiver<usize>) {
        let (end, ended) = mpsc::channel();
        let (runs, over, end) = (AtomicUsize::new(0), AtomicBool::new(false), Some(end));
        (Self { runs, over, end }, ended)
    }
}

impl Work for Counted {
    fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    fn run(&self, _: usize, _: &Queue) {
        self.runs.fetch_add(1, SeqCst);
        assert!(self.end.is_some(), "work without an end panics");
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(end) = &self.end {
            end.send(self.runs.load(SeqCst)).ok();
        }
    }
}

#[test]
fn each_part_runs_once_and_work_that_is_over_is_dropped() {
    let pool = Pool::start(2);
    pool.submit(Arc::new(Counted::default()));
    let (over, dropped) = Counted::reporting();
    over.over.store(true, SeqCst);
    pool.0.threads.queue.add(Arc::new(over), 10);
    let (work, ended) = Counted::reporting();
    pool.0.threads.queue.add(Arc::new(work), 1000);
    assert_eq!((dropped.recv(), ended.recv()), (Ok(0), Ok(1000)), "also after a panic");
}

/// Work that reports the nice value of its thread.
struct Priority(mpsc::Sender<i32>);

impl Work for Priority {
    fn is_over(&self) -> bool {
        false
    }

    fn run(&self, _: usize, _: &Queue) {
        self.0.send(nice()).ok();
    }
}

#[test]
fn work_keeps_the_priority_of_its_caller() {
    let (pool, (found, priorities)) = (Pool::start(1), mpsc::channel());
    let usual = nice();
    let low = thread::scope(|scope| {
        let lowered = scope.spawn(|| {
            setpriority_process(None, usual + 3).expect("a lower priority");
            pool.submit(Arc::new(Priority(found.clone())));
        });
        lowered.join().expect("the work is submitted");
        priorities.recv()
    });
    pool.submit(Arc::new(Priority(found)));
    assert_eq!((low, priorities.recv()), (Ok(usual + 3), Ok(usual)));
}

#[test]
fn the_threads_end_with_the_pool() {
    let pool = Pool::start(3);
    let queue = Arc::downgrade(&pool.0.threads.queue);
    assert_eq!(pool.threads(), 3);
    drop(pool);
    while queue.strong_count() > 0 {
        thread::yield_now();
    }
}

#[test]
fn the_pool_of_the_process_is_one() {
    let [one, other] = [Pool::of_process(), Pool::of_process()];
    assert!(Arc::ptr_eq(&one.0, &other.0) && one.threads() > 0);
}
