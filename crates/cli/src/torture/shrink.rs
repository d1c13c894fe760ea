//! Finds the smallest set of faults that still makes a run fail.

/// Removes faults as long as the rest still fails: single ones first if there are few, then halves, quarters
/// and so on (delta debugging). `fails` runs the program; it is called at most `limit` times.
pub(super) fn shrink<E>(
    faults: Vec<String>,
    limit: usize,
    mut fails: impl FnMut(&[String]) -> Result<bool, E>,
) -> Result<Vec<String>, E> {
    /// With more, halves are faster.
    const FEW: usize = 8;
    let mut left = limit;
    let mut smallest = faults;
    if (2..=FEW).contains(&smallest.len()) {
        for fault in smallest.clone() {
            if left == 0 {
                return Ok(smallest);
            }
            left -= 1;
            if fails(std::slice::from_ref(&fault))? {
                return Ok(vec![fault]);
            }
        }
    }
    let mut parts = 2;
    while smallest.len() > 1 && left > 0 {
        let size = smallest.len().div_ceil(parts);
        let starts = (0..smallest.len()).step_by(size);
        let mut found = None;
        for start in starts {
            let end = (start + size).min(smallest.len());
            let rest = [&smallest[..start], &smallest[end..]].concat();
            if left == 0 {
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
                parts = (parts - 1).max(2);
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(smallest.len()),
        }
    }
    Ok(smallest)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn shrunk(count: usize, needed: &[usize], limit: usize) -> (Vec<String>, usize) {
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
            assert_eq!(found, needed, "after {runs} runs");
            assert!(runs < 60, "{runs} runs");
        }
    }

    #[test]
    fn the_limit_ends_the_search_with_a_set_that_fails() {
        let (found, runs) = shrunk(40, &[3, 31], 5);
        assert_eq!(runs, 5);
        assert!(found.contains(&"3".to_owned()) && found.contains(&"31".to_owned()));
    }
}
