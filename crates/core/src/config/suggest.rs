//! "Did you mean …?"

/// A shorter prefix than this matches too much.
const TELLING_BEGINNING: usize = 4;

/// The candidate that is most similar to the text, if it is similar enough for the text to be a typo. Otherwise, the
/// only candidate that starts with the text.
pub(super) fn nearest<'a>(text: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let text = text.to_lowercase();
    likest(&text, candidates).or_else(|| {
        let mut begun = candidates.iter().filter(|candidate| candidate.to_lowercase().starts_with(&text));
        let only = begun.next().filter(|_| text.len() >= TELLING_BEGINNING)?;
        begun.next().is_none().then_some(*only)
    })
}

fn likest<'a>(text: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let slips_allowed = (text.chars().count() / 3).clamp(1, 4);
    candidates
        .iter()
        .map(|&candidate| (distance(text, &candidate.to_lowercase()), candidate))
        .filter(|&(slips, _)| slips <= slips_allowed)
        .min_by_key(|&(slips, _)| slips)
        .map(|(_, candidate)| candidate)
}

/// The edit distance: letters that must be added, removed, changed or swapped with their neighbour.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut before_previous = vec![0; other.len() + 1];
    let mut previous: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.iter().enumerate() {
        let mut current = vec![i + 1];
        for (j, candidate) in other.iter().enumerate() {
            let changed = previous[j] + usize::from(letter != candidate);
            let mut fewest = changed.min(previous[j + 1] + 1).min(current[j] + 1);
            if i > 0 && j > 0 && *letter == other[j - 1] && one[i - 1] == *candidate {
                fewest = fewest.min(before_previous[j - 1] + 1);
            }
            current.push(fewest);
        }
        before_previous = std::mem::replace(&mut previous, current);
    }
    previous[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_slips() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("NoShedule", "NoSchedule"), 1);
        assert_eq!(distance("tiemout", "timeout"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn suggests_only_what_is_like_it() {
        let words = ["exponential", "linear"];
        assert_eq!(nearest("exponental", &words), Some("exponential"));
        assert_eq!(nearest("LINEAR", &words), Some("linear"));
        assert_eq!(nearest("quadratic", &words), None);
        assert_eq!(nearest("", &words), None);
    }

    #[test]
    fn completes_what_can_only_be_one_thing() {
        let words = ["checkTimeoutSeconds", "checkIntervalSeconds", "port"];
        assert_eq!(nearest("checkTimeout", &words), Some("checkTimeoutSeconds"));
        assert_eq!(nearest("check", &words), None);
        assert_eq!(nearest("check", &words[1..]), Some("checkIntervalSeconds"));
        assert_eq!(nearest("che", &words[1..]), None);
    }

    #[test]
    fn every_letter_that_is_too_many_counts() {
        assert_eq!(distance("retries", "retri"), 2);
        assert_eq!(distance("retri", "retries"), 2);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abcd", "bd"), 2);
    }
}
