//! Some threads that take jobs from a list until it is empty.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs a function for each job, on so many threads, and returns the results in the order of the jobs.
pub(crate) fn run<J: Sync, R: Send>(
    jobs: &[J],
    threads: usize,
    work: impl Fn(&J) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(jobs.len()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { return };
                    let result = work(job);
                    results.lock().expect("no job panics").push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no job panics");
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_runs_once_and_results_keep_their_order() {
        let jobs: Vec<_> = (0..1000).collect();
        assert_eq!(
            run(&jobs, 3, |job| job * 2),
            jobs.iter().map(|job| job * 2).collect::<Vec<_>>()
        );
    }
}
