//! Folds repeated packets.

/// A repeated sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    /// The number of packets of one round.
    pub(super) period: usize,
    /// The number of rounds.
    pub(super) rounds: usize,
}

/// The longest round: request, response, request of the other side, response.
const LONGEST_PERIOD: usize = 4;

/// The repeated sequence at the start of `shapes` that covers most packets.
pub(super) fn run_at<T: PartialEq>(shapes: &[T]) -> Run {
    let once = Run {
        period: 1,
        rounds: 1,
    };
    let candidates = (1..=LONGEST_PERIOD.min(shapes.len())).map(|period| Run {
        period,
        rounds: rounds(shapes, period),
    });
    // Two rounds are not folded, because the fold takes a line itself.
    candidates
        .filter(|run| run.rounds > 2)
        .fold(once, |best, run| {
            if run.covers() > best.covers() {
                run
            } else {
                best
            }
        })
}

impl Run {
    fn covers(self) -> usize {
        self.period * self.rounds
    }
}

fn rounds<T: PartialEq>(shapes: &[T], period: usize) -> usize {
    let round = &shapes[..period];
    shapes
        .chunks_exact(period)
        .take_while(|next| *next == round)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(shapes: &str) -> (usize, usize) {
        let shapes: Vec<char> = shapes.chars().collect();
        let run = run_at(&shapes);
        (run.period, run.rounds)
    }

    #[test]
    fn the_longest_repeated_run_is_found() {
        assert_eq!(run("abc"), (1, 1));
        assert_eq!(run("aab"), (1, 1));
        assert_eq!(run("aaaab"), (1, 4));
        assert_eq!(run("abababx"), (2, 3));
        assert_eq!(run("abcdabcdabcdab"), (4, 3));
        assert_eq!(run("a"), (1, 1));
    }
}
