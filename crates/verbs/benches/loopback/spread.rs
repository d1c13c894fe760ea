//! Several measurements of one thing.

use std::fmt;

/// Median, smallest and largest.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    pub(crate) fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        Self {
            median: samples[samples.len() / 2],
            min: samples[0],
            max: samples[samples.len() - 1],
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = format!("({:.2}-{:.2})", self.min, self.max);
        write!(f, "{:8.2} {range:>16}", self.median)
    }
}

/// Takes turns: `rounds` samples of each.
pub(crate) fn in_turn(
    rounds: usize,
    mut ours: impl FnMut() -> f64,
    mut theirs: impl FnMut() -> f64,
) -> (Spread, Spread) {
    let mut samples = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        samples.0.push(ours());
        samples.1.push(theirs());
    }
    (Spread::of(samples.0), Spread::of(samples.1))
}
