//! Finds the smallest set of faults that still makes a run fail.

/// A set of faults that makes a run fail.
#[derive(Debug, PartialEq)]
pub(super) struct Shrunk {
    pub(super) faults: Vec<String>,
    /// Whether the run passes without any one of them.
    pub(super) is_minimal: bool,
}

/// Removes faults as long as the rest still fails: single ones first if there are few, then halves, quarters
/// and so on (delta debugging). `fails` runs the program with a set; it is called at most `limit` times. Without faults, the
/// program passes.
pub(super) fn shrink<E>(
    faults: Vec<String>,
    limit: usize,
    mut fails: impl FnMut(&[String]) -> Result<bool, E>,
) -> Result<Shrunk, E> {
    /// With more, halves are faster.
    const FEW: usize = 8;
    let mut left = limit;
    let mut smallest = faults;
    if (2..=FEW).contains(&smallest.len()) {
        for fault in smallest.clone() {
            if left == 0 {
                break;
            }
            left -= 1;
            if fails(std::slice::from_ref(&fault))? {
                smallest = vec![fault];
                break;
            }
        }
    }
    let mut parts = 2;
    let mut is_minimal = smallest.len() <= 1;
    while !is_minimal && left > 0 {
        let size = smallest.len().div_ceil(parts);
        let starts = (0..smallest.len()).step_by(size);
        let mut found = None;
        let mut are_all_tried = true;
        for start in starts {
            let end = (start + size).min(smallest.len());
            let rest = [&smallest[..start], &smallest[end..]].concat();
            if left == 0 {
                are_all_tried = false;
                break;
            }
            left -= 1;
            if fails(&rest)? {
                found = Some(rest);
                break;
            }
        }
        match found {
            Some(rest) => {
                smallest = rest;
                is_minimal = smallest.len() <= 1;
                parts = (parts - 1).max(2);
            }
            None if size == 1 => is_minimal = are_all_tried,
            None => parts = (parts * 2).min(smallest.len()),
        }
    }
    Ok(Shrunk {
        faults: smallest,
        is_minimal,
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn shrunk(count: usize, needed: &[usize], limit: usize) -> (Shrunk, usize) {
        let faults: Vec<String> = (0..count).map(|number| number.to_string()).collect();
        let needed: Vec<String> = needed.iter().map(ToString::to_string).collect();
        let mut runs = 0;
        let found = shrink(faults, limit, |candidate| {
            runs += 1;
            Ok::<_, Infallible>(needed.iter().all(|one| candidate.contains(one)))
        });
        let Ok(found) = found;
        (found, runs)
    }

    #[test]
    fn the_needed_faults_are_left() {
        for (count, needed) in [
            (1, &[0][..]),
            (5, &[3]),
            (40, &[7]),
            (40, &[3, 31]),
            (6, &[1, 2]),
        ] {
            let (found, runs) = shrunk(count, needed, 200);
            let needed: Vec<String> = needed.iter().map(ToString::to_string).collect();
            assert_eq!(found.faults, needed, "after {runs} runs");
            assert!(found.is_minimal, "{found:?}");
            assert!(runs < 60, "{runs} runs");
        }
    }

    #[test]
    fn the_limit_ends_the_search_with_a_set_that_fails() {
        let (found, runs) = shrunk(40, &[3, 31], 5);
        assert_eq!(runs, 5);
        let has = |fault: &str| found.faults.iter().any(|it| it == fault);
        assert!(has("3") && has("31"), "{found:?}");
        assert!(!found.is_minimal, "others may be needless");
    }

    /// A set that was reduced to the needed faults is not called minimal before each of them was removed in turn.
    #[test]
    fn a_set_is_minimal_only_if_the_limit_let_each_fault_be_removed() {
        let (found, runs) = shrunk(40, &[3, 31], 200);
        assert!(found.is_minimal);
        let (earlier, _) = shrunk(40, &[3, 31], runs - 1);
        assert_eq!(earlier.faults, found.faults);
        assert!(!earlier.is_minimal);
    }
}
