//! Several measurements of one thing, and the goal beside them.

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
pub(crate) fn take_turns<const N: usize>(
    rounds: usize,
    mut measures: [&mut dyn FnMut() -> f64; N],
) -> [Spread; N] {
    let mut samples = [const { Vec::new() }; N];
    for _ in 0..rounds {
        for (measure, samples) in measures.iter_mut().zip(&mut samples) {
            samples.push(measure());
        }
    }
    samples.map(Spread::of)
}

/// Takes turns with a comparison.
pub(crate) fn in_turn(
    rounds: usize,
    mut ours: impl FnMut() -> f64,
    mut theirs: impl FnMut() -> f64,
) -> (Spread, Spread) {
    let [ours, theirs] = take_turns(rounds, [&mut ours, &mut theirs]);
    (ours, theirs)
}

/// What a figure should be.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// The figure is there for comparison.
    None,
}

impl Goal {
    /// The goal, and whether the figure meets it.
    pub(crate) fn for_figure(self, figure: f64) -> String {
        let (text, met) = match self {
            Goal::AtLeast(least) => (format!(">= {least:.2}"), figure >= least),
            Goal::AtMost(most) => (format!("<= {most:.2}"), figure <= most),
            Goal::None => return String::new(),
        };
        format!("{text} {}", if met { "met" } else { "missed" })
    }
}
