//! Lists of numbers as people write them: `0-3,8`.

/// Ascending runs of two or more are joined by a dash; the order is kept.
#[must_use]
pub fn ranges(numbers: impl IntoIterator<Item = u32>) -> String {
    joined(&mut numbers.into_iter())
}

/// [`ranges`], compiled once for all iterators.
fn joined(numbers: &mut dyn Iterator<Item = u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last != u32::MAX && *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let words = runs.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_joined() {
        assert_eq!(ranges([0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(ranges([5, 5, 4, 5]), "5,5,4-5");
        assert_eq!(ranges([]), "");
        assert_eq!(ranges([u32::MAX, 0]), "4294967295,0");
    }
}
